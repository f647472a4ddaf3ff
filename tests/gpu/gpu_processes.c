/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_processes.c - starting the processes of gpu_sharing.c, talking to them, ending them.
 */
#include "gpu_processes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descriptor_socket.h"
#include "gpu_must.h"

static void
watchdog(int signal)
{
    static const char text[] = "gpu_sharing: nothing went on for too long\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)signal;
    _exit(written > 0 ? 1 : 2);
}

void
watchdog_begin(void)
{
    (void)signal(SIGALRM, watchdog);
    (void)alarm(WATCHDOG_S);
}

uint64_t
now_ns(void)
{
    struct timespec time;

    MUST(clock_gettime(CLOCK_MONOTONIC, &time));
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

bool
message_send(int socket, const struct message *message)
{
    return descriptor_send(socket, message, sizeof(*message), message->descriptor);
}

bool
message_receive(int socket, struct message *message)
{
    int descriptor;

    if (!descriptor_receive(socket, 0, message, sizeof(*message), &descriptor))
        return false;
    message->descriptor = descriptor;
    return true;
}

struct peer
peer_start(void)
{
    struct peer peer;
    int ends[2];

    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    peer.pid = fork();
    if (peer.pid == 0) {
        int end = dup(ends[1]);

        (void)dup2(end, PEER_SOCKET);
        (void)execl("/proc/self/exe", "gpu_sharing", "--peer", (char *)NULL);
        _exit(127);
    }
    MUST(peer.pid < 0);
    MUST(close(ends[1]));
    peer.socket = ends[0];
    return peer;
}

struct message
ask(const struct peer *peer, struct message message)
{
    MUST(!message_send(peer->socket, &message));
    MUST(!message_receive(peer->socket, &message));
    return message;
}

struct message
message_of(enum what what, uint64_t number, uint64_t version)
{
    return (struct message){.what = what, .descriptor = -1, .number = number, .version = version};
}

void
peer_kill(const struct peer *peer)
{
    MUST(kill(peer->pid, SIGKILL));
    MUST(waitpid(peer->pid, NULL, 0) != peer->pid);
    MUST(close(peer->socket));
}

void
peer_close(const struct peer *peer)
{
    int status = 1;

    MUST(ask(peer, message_of(CLOSE, 0, 0)).status);
    MUST(close(peer->socket));
    MUST(waitpid(peer->pid, &status, 0) != peer->pid);
    MUST(status);
}
