/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor_socket.c - see descriptor_socket.h.
 */
#include "descriptor_socket.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* Room for one descriptor, where its head may lie. */
union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

bool
descriptor_send(int socket, const void *bytes, size_t size, int descriptor)
{
    union control control = {0};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr all = {.msg_iov = &piece, .msg_iovlen = 1};

    if (descriptor >= 0) {
        all.msg_control = control.room;
        all.msg_controllen = sizeof(control.room);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &descriptor, sizeof(int));
    }
    return sendmsg(socket, &all, MSG_NOSIGNAL) == (ssize_t)size;
}

bool
descriptor_receive(int socket, int flags, void *bytes, size_t size, int *descriptor_out)
{
    union control control = {0};
    struct iovec piece = {.iov_base = bytes, .iov_len = size};
    struct msghdr all = {.msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof(control.room)};
    ssize_t got;

    *descriptor_out = -1;
    do
        got = recvmsg(socket, &all, flags | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)size)
        return false;
    if (all.msg_controllen >= CMSG_LEN(sizeof(int)))
        memcpy(descriptor_out, CMSG_DATA(&control.head), sizeof(int));
    return true;
}
