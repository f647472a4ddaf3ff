/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_kit.h - other processes that share HBM with a test, over the emulated device: readers, and
 * owners of stores. They do what they are asked for over a socket, and die when they are killed.
 *
 * A test's program is such a process when it is started with the argument of peer_start(). Whatever
 * must not go wrong fails the running test.
 */
#ifndef KVT_TESTS_PEER_KIT_H
#define KVT_TESTS_PEER_KIT_H

#include <sys/types.h>

#include "hbm_kit.h"
#include "kvtier/sharing.h"

enum peer_what {
    PEER_NOTHING,
    PEER_IMPORT,      /* share, descriptor; delay_ns of its device. */
    PEER_EVENT_OPEN,  /* share, descriptor */
    PEER_EVENT_MAKE,  /* Gives share and descriptor. */
    PEER_EVENT_WAIT,  /* At most delay_ns. */
    PEER_READ,        /* locator, number; gives version, 0: these are no bytes of it. */
    PEER_STREAM_READ, /* The same by a kernel behind the event (version 1), or not (0). */
    PEER_HELD,        /* Its stream works until PEER_GO, says PEER_DONE and reaches its event. */
    PEER_GO,
    PEER_DONE,
    PEER_OWN,       /* A store at path, with shared HBM; gives share and descriptor. */
    PEER_PUT,       /* number, version: to HBM, and leased; gives locator. */
    PEER_OVERWRITE, /* Its stream writes a version to the leased block, and records the event. */
    PEER_CLOSE,
};

struct peer_message {
    enum peer_what what;
    enum kvt_status status; /* Of an answer. */
    int descriptor;         /* Of the receiver; negative: none. */
    uint64_t number, version, delay_ns;
    struct kvt_share share;
    struct kvt_locator locator;
    char path[KIT_PATH_BYTES];
};

struct peer {
    pid_t pid;
    int socket;
};

/* peer_main - call it first in main(): does not return in a process that peer_start() started. */
void peer_main(int argc, char **argv);

struct peer peer_start(void);
/* peer_ask - the answer, whatever its status. peer_tell - without waiting for one. */
struct peer_message peer_ask(const struct peer *peer, const struct peer_message *message);
void peer_tell(const struct peer *peer, const struct peer_message *message);
/* peer_hear - the next message; false: the peer has hung up, or (`is_now`) has said nothing. */
bool peer_hear(const struct peer *peer, bool is_now, struct peer_message *message_out);
/* peer_end - it ends by itself (signal 0), or by this signal. Its socket is closed. */
void peer_end(struct peer *peer, int signal);

/* peer_read_by_kernel - what a kernel on `stream` of `device` finds at an address: the version of
 * the block, 0: no bytes of it; `first_out` may be NULL. The stream is finished then. */
uint64_t peer_read_by_kernel(
    struct device *device, void *stream, const void *address, uint64_t number, uint8_t *first_out);

#endif /* KVT_TESTS_PEER_KIT_H */
