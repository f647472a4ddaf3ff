/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_processes.h - the processes of gpu_sharing.c, and what they tell each other.
 */
#ifndef KVT_TESTS_GPU_PROCESSES_H
#define KVT_TESTS_GPU_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

#include "kvtier/kvtier.h"
#include "store_host.h"

enum {
    PEER_SOCKET = 3, /* Of a process that was started. */
    WATCHDOG_S = 200,
};

enum what {
    HBM,    /* To a reader: import it. */
    EVENT,  /* Open it. */
    MAKE,   /* Give an event. */
    READ,   /* By the library: is it the version? */
    COPY,   /* By its stream, behind the owner's event; then its own event is recorded. */
    CHECK,  /* What it copied last: is it the version? */
    SPEED,  /* Of copies from the import, and from memory of its own. */
    STUCK,  /* Its event is recorded behind an hour. */
    WRITE,  /* To the import. */
    OWN,    /* To an owner: a store with blocks; gives its HBM. */
    LOCATE, /* Gives the locator of a block. */
    RECORD, /* Its event is recorded behind an hour and the block's new version. */
    CLOSE,
};

struct message {
    enum what what;
    int status;
    int descriptor;
    uint64_t number, version;
    double speeds[2]; /* GB/s */
    struct kvt_share share;
    struct kvt_locator locator;
    char path[HOST_PATH_BYTES]; /* OWN: of the store. */
};

struct peer {
    pid_t pid;
    int socket;
};

/* watchdog_begin - this process ends, and says so, when it takes longer than WATCHDOG_S. */
void watchdog_begin(void);

uint64_t now_ns(void);

/* False: the other side has hung up. A descriptor that is not negative goes with the message. */
bool message_send(int socket, const struct message *message);
bool message_receive(int socket, struct message *message);

/* peer_start - this program once more, with the argument "--peer". */
struct peer peer_start(void);

struct message message_of(enum what what, uint64_t number, uint64_t version);
/* ask - the answer; a peer that does not give one ends this process, too. */
struct message ask(const struct peer *peer, struct message message);

void peer_kill(const struct peer *peer);
/* peer_close - it closes all that it has, and ends by itself. */
void peer_close(const struct peer *peer);

#endif /* KVT_TESTS_GPU_PROCESSES_H */
