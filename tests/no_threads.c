/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_threads.c - linked into the programs that tests/CMakeLists.txt lists as one-threaded, which
 * the thread sanitizer does not run: they cannot start a thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* In the place of pthread_create (--wrap). */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
    void *(*run)(void *argument), void *argument);

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
    void *(*run)(void *argument), void *argument)
{
    (void)thread;
    (void)attributes;
    (void)run;
    (void)argument;
    fprintf(stderr, "a thread, in a program that tests/CMakeLists.txt lists as one-threaded\n");
    exit(1);
}
