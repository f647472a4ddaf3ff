/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_processes.c - one process keeps blocks in memory of the device, another reads them there.
 *
 * Usage: two_processes DIR. The reader is started before the store is opened: a store, and a GPU,
 * belong to the process that opened them. It has no store; all that it gets comes by a socket.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h> /* kvt_device_*: memory of a device, also without a GPU. */

enum {
    BLOCKS = 6,
    BLOCK_BYTES = 65536,
};

/* Ends the program when a call failed. */
static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "two_processes: %s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

/* --- What a serving engine writes ------------------------------------------------------------- */

/* Hands a share and its descriptor to another process. */
static bool
share_send(int socket, const struct kvt_share *share, int descriptor)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {
        .head = {
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)share, .iov_len = sizeof(*share)};
    struct msghdr message = {.msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof(control.room)};

    memcpy(CMSG_DATA(&control.head), &descriptor, sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*share);
}

/* The other end. The descriptor is the caller's to close. */
static bool
share_receive(int socket, struct kvt_share *share_out, int *descriptor_out)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec bytes = {.iov_base = share_out, .iov_len = sizeof(*share_out)};
    struct msghdr message = {.msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof(control.room)};

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*share_out) ||
        message.msg_controllen < CMSG_LEN(sizeof(int)))
        return false;
    memcpy(descriptor_out, CMSG_DATA(&control.head), sizeof(int));
    return true;
}

/* Offers a block to the reader behind the socket, and keeps it where it is until it has been read,
 * or the reader is gone. The lease ends in both cases: KVT_MISS says that it was not read. */
static enum kvt_status
block_offer(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, int socket)
{
    struct kvt_locator locator;
    kvt_lease lease;
    char answer;
    enum kvt_status status = kvt_lookup(store, ns, key, 1, NULL, NULL, &lease);

    if (status == KVT_OK)
        status = kvt_lease_export(store, lease, 0, KVT_TIER_HBM, &locator);
    if (status == KVT_OK &&
        (send(socket, &locator, sizeof(locator), MSG_NOSIGNAL) != (ssize_t)sizeof(locator) ||
            recv(socket, &answer, 1, 0) != 1))
        status = KVT_MISS; /* The socket hangs up when the reader dies, however it does. */
    kvt_lease_release(store, lease);
    return status;
}

/* The reader: blocks as they are offered, until the owner hangs up. Returns how many are right. A
 * program with kernels has them read at kvt_import_address() instead. */
static int
blocks_read(kvt_import *import, int socket, bool (*is_right)(int number, const uint8_t *bytes))
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_locator locator;
    int count = 0;

    while (recv(socket, &locator, sizeof(locator), 0) == (ssize_t)sizeof(locator)) {
        if (kvt_import_read(import, &locator, bytes, sizeof(bytes)) != KVT_OK)
            break;
        /* Before it says so: the block may be gone when the owner knows. */
        if (is_right(count, bytes))
            count++;
        if (send(socket, "", 1, MSG_NOSIGNAL) != 1)
            break;
    }
    return count;
}

/* --- The programs around it ------------------------------------------------------------------- */

static void
block_make(int number, uint8_t *bytes)
{
    memset(bytes, 'a' + number, BLOCK_BYTES);
}

static bool
block_is_right(int number, const uint8_t *bytes)
{
    static uint8_t wanted[BLOCK_BYTES];

    block_make(number, wanted);
    return memcmp(bytes, wanted, BLOCK_BYTES) == 0;
}

static int
reader_run(int socket)
{
    struct kvt_share share;
    kvt_import *import;
    int descriptor, count;

    if (!share_receive(socket, &share, &descriptor))
        return 1; /* The owner has said why. */
    must(kvt_import_open(&share, descriptor, &import), "cannot import");
    (void)close(descriptor);
    count = blocks_read(import, socket, block_is_right);
    must(kvt_import_close(import), "cannot close the import");
    printf("%d blocks read by another process, %s\n", count, count == BLOCKS ? "right" : "WRONG");
    return count == BLOCKS ? 0 : 1;
}

/* Keeps a block in HBM, from memory of the device. */
static void
block_put(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, int number,
    kvt_region region, void *page)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put put = {.key = *key,
        .source = page,
        .length = BLOCK_BYTES,
        .region = region,
        .tier = KVT_TIER_HBM,
        .flags = KVT_PUT_REPLACE};
    kvt_ticket *ticket;

    block_make(number, bytes);
    must(kvt_device_write(store, 0, page, bytes, sizeof(bytes)), "cannot write to the device");
    must(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), "cannot put");
    must(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), "cannot wait");
    kvt_ticket_free(ticket);
}

static void
owner_run(const char *path, int socket)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCK_BYTES};
    struct kvt_share share;
    kvt_store *store;
    kvt_namespace ns;
    kvt_region region;
    int descriptor;

    options.flags = KVT_OPEN_SHARE_HBM;
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    options.hbm_capacity_bytes = 16 << 20;
    must(kvt_open(path, &options, &store), "cannot open the store");
    must(kvt_namespace_open(store, "shared", "", 0, &ns), "cannot open a namespace");
    must(kvt_device_alloc(store, 0, about.size, &about.address), "no memory of the device");
    must(kvt_region_register(store, &about, &region), "cannot register a page");
    must(kvt_hbm_export(store, 0, &share, &descriptor), "cannot export");
    if (!share_send(socket, &share, descriptor))
        fprintf(stderr, "two_processes: the reader is gone\n");
    for (int i = 0; i < BLOCKS; i++) {
        const char name = (char)('a' + i);
        const struct kvt_key key = {.bytes = &name, .length = 1};

        block_put(store, ns, &key, i, region, about.address);
        if (block_offer(store, ns, &key, socket) != KVT_OK)
            fprintf(stderr, "two_processes: block %d was not read\n", i);
    }
    must(kvt_region_unregister(store, region), "cannot unregister the page");
    kvt_device_free(store, 0, about.address, about.size);
    must(kvt_close(store), "cannot close the store");
}

int
main(int argc, char **argv)
{
    int ends[2], status = 1;
    pid_t reader;

    if (argc != 2) {
        fprintf(stderr, "usage: two_processes DIR\n");
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return 1;
    reader = fork();
    if (reader == 0) {
        (void)close(ends[0]);
        return reader_run(ends[1]);
    }
    (void)close(ends[1]);
    owner_run(argv[1], ends[0]);
    (void)close(ends[0]);
    if (reader < 0 || waitpid(reader, &status, 0) != reader)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
