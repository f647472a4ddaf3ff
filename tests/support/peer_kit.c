/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_kit.c - processes that share HBM with a test (peer_kit.h).
 */
#include "peer_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "descriptor_socket.h"
#include "processes.h"
#include "stop_on_proof.h"
#include "store_internal.h"

#define PEER_ARGUMENT "--peer"

enum {
    PEER_SOCKET = 3,
    PEER_FAILED = 9,
};

/* --- 1. Messages ------------------------------------------------------------------------------ */

static bool
message_send(int socket, const struct peer_message *message)
{
    return descriptor_send(socket, message, sizeof(*message), message->descriptor);
}

static bool
message_receive(int socket, int flags, struct peer_message *message)
{
    int descriptor;

    if (!descriptor_receive(socket, flags, message, sizeof(*message), &descriptor))
        return false;
    message->descriptor = descriptor;
    return true;
}

/* --- 2. The other process --------------------------------------------------------------------- */

static struct {
    struct device_host_config config;
    struct kvt_env env;
    kvt_import *import;
    bool is_owner; /* It has hbm.store. */
    kvt_shared_event *event;
    void *stream;
    kvt_lease leases[8]; /* By the blocks' numbers. */
    const void *addresses[8];
    uint64_t slow_ns;
    atomic_bool may_go;
} self;

static struct device *
self_device(void)
{
    return self.is_owner ? hbm_device(hbm.store->devices.tiers[0]) : self.import->device;
}

static void *
self_stream(void)
{
    if (self.stream == NULL)
        assert_int_equal(device_host_stream_create(self_device(), &self.stream), KVT_OK);
    return self.stream;
}

static struct kvt_side
self_side(void)
{
    return (struct kvt_side){
        .store = self.is_owner ? hbm.store : NULL, .import = self.is_owner ? NULL : self.import};
}

static uint64_t
version_of(const uint8_t *bytes, uint64_t number)
{
    uint64_t version = 0;

    return payload_is_right(bytes, HBM_BLOCK_BYTES, number, &version) ? version : 0;
}

struct kernel_look {
    uint64_t number, version;
    uint8_t first;
};

static void
kernel_run(void *context, void *memory)
{
    struct kernel_look *look = context;

    look->first = *(uint8_t *)memory;
    look->version = version_of(memory, look->number);
}

uint64_t
peer_read_by_kernel(
    struct device *device, void *stream, const void *address, uint64_t number, uint8_t *first_out)
{
    struct kernel_look look = {.number = number};

    assert_int_equal(
        device_host_launch(device, stream, kernel_run, &look, (void *)(uintptr_t)address), KVT_OK);
    hbm_stream_finish(device, stream);
    if (first_out != NULL)
        *first_out = look.first;
    return look.version;
}

static void
kernel_pause(void *context, void *memory)
{
    const struct timespec pause = {.tv_sec = (time_t)(self.slow_ns / 1000000000),
        .tv_nsec = (long)(self.slow_ns % 1000000000)};

    (void)context;
    (void)memory;
    (void)nanosleep(&pause, NULL);
}

static void
kernel_say(void *context, void *memory)
{
    const struct peer_message done = {.what = PEER_DONE, .descriptor = -1};

    (void)context;
    (void)memory;
    (void)message_send(PEER_SOCKET, &done);
}

static enum kvt_status
own_do(const struct peer_message *message, struct peer_message *answer)
{
    snprintf(hbm.path, sizeof(hbm.path), "%s", message->path);
    hbm.config = (struct device_host_config){.seed = 11, .delay_ns_max = message->delay_ns};
    kvt_env_host(&hbm.env);
    hbm.env.device = &device_host_ops;
    hbm.env.device_context = &hbm.config;
    hbm.options = kit_options();
    hbm.options.hbm_capacity_bytes = 2 << 20;
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm_open_again();
    self.is_owner = true;
    return kvt_hbm_export(hbm.store, 0, &answer->share, &answer->descriptor);
}

static enum kvt_status
put_do(const struct peer_message *message, struct peer_message *answer)
{
    kvt_lease *lease = &self.leases[message->number];
    struct payload_key name;
    uint64_t length;
    enum kvt_status status =
        hbm_put(message->number, message->version, KVT_TIER_HBM, KVT_MEMORY, KVT_PUT_REPLACE);

    payload_key_make(&name, message->number);
    if (status == KVT_OK)
        status = kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, lease);
    if (status == KVT_OK)
        status = kvt_lease_address(
            hbm.store, *lease, 0, KVT_TIER_HBM, &self.addresses[message->number], &length);
    return status != KVT_OK
               ? status
               : kvt_lease_export(hbm.store, *lease, 0, KVT_TIER_HBM, &answer->locator);
}

/* By a copy of the device from the caller's memory, on a stream of its own. */
static enum kvt_status
overwrite_do(const struct peer_message *message)
{
    struct device *device = self_device();
    struct device_piece piece = {.target = (void *)(uintptr_t)self.addresses[message->number],
        .source = hbm_pool_at(100),
        .size = HBM_BLOCK_BYTES};
    uint8_t bytes[HBM_BLOCK_BYTES];

    payload_fill(bytes, sizeof(bytes), message->number, message->version);
    assert_int_equal(
        kvt_device_write(hbm.store, 0, hbm_pool_at(100), bytes, sizeof(bytes)), KVT_OK);
    /* Late enough for whoever does not wait; what it uses is not the target, which is poisoned. */
    self.slow_ns = message->delay_ns;
    if (self.slow_ns > 0)
        assert_int_equal(
            device_host_launch(device, self_stream(), kernel_pause, NULL, hbm_pool_at(0)), KVT_OK);
    assert_int_equal(device->ops->copy(device, self_stream(), &piece, 1), KVT_OK);
    return kvt_shared_event_record(self.event, self_stream());
}

static enum kvt_status
read_do(const struct peer_message *message, struct peer_message *answer)
{
    static uint8_t bytes[HBM_BLOCK_BYTES];
    const void *address;
    enum kvt_status status;

    if (message->what == PEER_READ) {
        status = kvt_import_read(self.import, &message->locator, bytes, sizeof(bytes));
        answer->version = status == KVT_OK ? version_of(bytes, message->number) : 0;
        answer->number = bytes[0];
        return status;
    }
    status = kvt_import_address(self.import, &message->locator, &address);
    if (status == KVT_OK && message->version != 0)
        status = kvt_shared_event_stream_wait(self.event, self_stream());
    if (status == KVT_OK) {
        uint8_t first;

        answer->version =
            peer_read_by_kernel(self_device(), self_stream(), address, message->number, &first);
        answer->number = first;
    }
    return status;
}

static enum kvt_status
held_do(const struct peer_message *message)
{
    const void *address;
    void *memory;
    enum kvt_status status = kvt_import_address(self.import, &message->locator, &address);

    if (status != KVT_OK)
        return status;
    memory = (void *)(uintptr_t)address;
    hbm_stream_hold(self_device(), self_stream(), memory, &self.may_go);
    assert_int_equal(
        device_host_launch(self_device(), self_stream(), kernel_say, NULL, memory), KVT_OK);
    return kvt_shared_event_record(self.event, self_stream());
}

static enum kvt_status
close_do(void)
{
    enum kvt_status status = kvt_shared_event_close(self.event);

    if (status != KVT_OK)
        return status;
    self.event = NULL;
    if (self.stream != NULL)
        device_host_stream_destroy(self_device(), self.stream);
    self.stream = NULL;
    if (!self.is_owner)
        return kvt_import_close(self.import);
    for (uint32_t i = 0; i < 8; i++)
        kvt_lease_release(hbm.store, self.leases[i]);
    hbm_close();
    return KVT_OK;
}

static enum kvt_status
message_do(const struct peer_message *message, struct peer_message *answer)
{
    const struct kvt_side side = self_side();

    switch (message->what) {
    case PEER_IMPORT:
        kvt_env_host(&self.env);
        self.config = (struct device_host_config){.delay_ns_max = message->delay_ns};
        self.env.device = &device_host_ops;
        self.env.device_context = &self.config;
        return import_open_in(&self.env, &message->share, message->descriptor, &self.import);
    case PEER_EVENT_OPEN:
        return kvt_shared_event_open(&side, &message->share, message->descriptor, &self.event);
    case PEER_EVENT_MAKE:
        return kvt_shared_event_create(&side, &answer->share, &answer->descriptor, &self.event);
    case PEER_EVENT_WAIT:
        return kvt_shared_event_wait(self.event, message->delay_ns);
    case PEER_READ:
    case PEER_STREAM_READ:
        return read_do(message, answer);
    case PEER_HELD:
        return held_do(message);
    case PEER_GO:
        atomic_store(&self.may_go, true);
        return KVT_OK;
    case PEER_OWN:
        return own_do(message, answer);
    case PEER_PUT:
        return put_do(message, answer);
    case PEER_OVERWRITE:
        return overwrite_do(message);
    case PEER_CLOSE:
        return close_do();
    case PEER_NOTHING:
    case PEER_DONE:
        break;
    }
    return KVT_OK;
}

void
peer_main(int argc, char **argv)
{
    struct peer_message message;

    if (argc != 2 || strcmp(argv[1], PEER_ARGUMENT) != 0)
        return;
    stop_on_proof();
    while (message_receive(PEER_SOCKET, 0, &message)) {
        struct peer_message answer = {.what = message.what, .descriptor = -1};

        answer.status = message_do(&message, &answer);
        if (message.descriptor >= 0)
            (void)close(message.descriptor);
        if (!message_send(PEER_SOCKET, &answer))
            exit(PEER_FAILED);
    }
    exit(0);
}

/* --- 3. The test ------------------------------------------------------------------------------ */

struct peer
peer_start(void)
{
    struct peer peer;
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    peer.pid = fork();
    if (peer.pid == 0) {
        /* dup2() of a descriptor to itself would leave it to be closed. */
        int end = dup(ends[1]);

        (void)dup2(end, PEER_SOCKET);
        (void)execl("/proc/self/exe", "peer", PEER_ARGUMENT, (char *)NULL);
        _exit(127);
    }
    assert_true(peer.pid > 0);
    assert_int_equal(close(ends[1]), 0);
    peer.socket = ends[0];
    return peer;
}

void
peer_tell(const struct peer *peer, const struct peer_message *message)
{
    assert_true(message_send(peer->socket, message));
}

bool
peer_hear(const struct peer *peer, bool is_now, struct peer_message *message_out)
{
    return message_receive(peer->socket, is_now ? MSG_DONTWAIT : 0, message_out);
}

struct peer_message
peer_ask(const struct peer *peer, const struct peer_message *message)
{
    struct peer_message answer;

    peer_tell(peer, message);
    do
        assert_true(peer_hear(peer, false, &answer));
    while (answer.what == PEER_DONE);
    assert_int_equal(answer.what, message->what);
    return answer;
}

void
peer_end(struct peer *peer, int signal)
{
    int status = 0;

    if (signal != 0)
        assert_int_equal(kill(peer->pid, signal), 0);
    assert_int_equal(close(peer->socket), 0);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    if (signal == 0) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}
