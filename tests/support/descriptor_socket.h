/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor_socket.h - messages between processes of a test, with which a file descriptor may go.
 */
#ifndef KVT_TESTS_DESCRIPTOR_SOCKET_H
#define KVT_TESTS_DESCRIPTOR_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

/* descriptor_send, descriptor_receive - one message of `size` bytes on a socket that keeps messages
 * apart. A descriptor that is negative is none; the one that comes is the receiver's, closed by
 * exec. `flags` as recvmsg(). False: the other side has hung up, or said something else. */
bool descriptor_send(int socket, const void *bytes, size_t size, int descriptor);
bool descriptor_receive(int socket, int flags, void *bytes, size_t size, int *descriptor_out);

#endif /* KVT_TESTS_DESCRIPTOR_SOCKET_H */
