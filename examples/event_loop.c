/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_loop.c - one thread that submits, waits for its queue's eventfd with poll(), and collects
 * what has been done.
 *
 * Usage: event_loop DIR.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>

enum {
    REQUESTS = 32,
    BLOCK_BYTES = 32768,
    COLLECT_MAX = 8, /* Completions at a time. */
};

/* One put on its way; `user` of its submission. */
struct request {
    char name[4];
    struct kvt_key key;
    enum kvt_status visible; /* Of stage 1 and of stage 2. */
    enum kvt_status durable;
};

/* Ends the program when a call failed. */
static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "event_loop: %s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

/* --- What a serving engine writes ------------------------------------------------------------- */

/* A put whose completions come through the queue. `source` is the store's until stage 1. */
static enum kvt_status
request_start(kvt_store *store, kvt_namespace ns, kvt_queue *queue, struct request *request,
    const void *source, kvt_ticket **ticket_out)
{
    struct kvt_put put = {.key = request->key, .source = source, .length = BLOCK_BYTES};
    struct kvt_submit submit = {.queue = queue, .user = request};

    return kvt_put_submit(store, ns, &put, 1, KVT_SYNC, &submit, ticket_out);
}

/* Takes what has come, without waiting. Returns how many tickets have reached their last stage. */
static uint32_t
queue_collect(kvt_queue *queue)
{
    struct kvt_completion done[COLLECT_MAX];
    uint32_t count, ended = 0;

    while (kvt_queue_poll(queue, done, COLLECT_MAX, 0, &count) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            struct request *request = done[i].user;
            struct kvt_result result;

            if (kvt_ticket_results(done[i].ticket, done[i].stage, &result, 1) != KVT_OK)
                continue;
            if (done[i].stage == KVT_STAGE_DONE) {
                request->visible = result.status;
            } else { /* The last stage: nothing more will come of this ticket. */
                request->durable = result.status;
                kvt_ticket_free(done[i].ticket);
                ended++;
            }
        }
    }
    return ended;
}

/* Until `count` tickets have ended. A real loop has other descriptors here, too. */
static void
queue_serve(kvt_queue *queue, uint32_t count)
{
    struct pollfd wait = {.fd = kvt_queue_fd(queue), .events = POLLIN};

    while (count > 0) {
        (void)poll(&wait, 1, 1000);
        count -= queue_collect(queue);
    }
}

/* --- The program around it -------------------------------------------------------------------- */

int
main(int argc, char **argv)
{
    static uint8_t sources[REQUESTS][BLOCK_BYTES];
    static struct request requests[REQUESTS];
    struct kvt_options options = KVT_OPTIONS_INIT;
    uint32_t kept = 0, given_up = 0;
    kvt_ticket *ticket;
    kvt_store *store;
    kvt_queue *queue;
    kvt_namespace ns;

    if (argc != 2) {
        fprintf(stderr, "usage: event_loop DIR\n");
        return 2;
    }
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    must(kvt_open(argv[1], &options, &store), "cannot open the store");
    must(kvt_namespace_open(store, "loop", "", 0, &ns), "cannot open a namespace");
    must(kvt_queue_create(store, &queue), "no queue");
    for (uint32_t i = 0; i < REQUESTS; i++) {
        (void)snprintf(requests[i].name, sizeof(requests[i].name), "%02u", i % 100u);
        requests[i].key = (struct kvt_key){.bytes = requests[i].name, .length = 2};
        memset(sources[i], (int)i, BLOCK_BYTES);
        must(request_start(store, ns, queue, &requests[i], sources[i], &ticket), "cannot put");
    }
    /* The last one is not wanted any more. It may be too late for that; the results say. */
    must(kvt_ticket_cancel(ticket), "cannot cancel");
    queue_serve(queue, REQUESTS);
    must(kvt_queue_drain(queue, KVT_FOREVER), "cannot wait");
    must(kvt_queue_destroy(queue), "something was not collected");
    must(kvt_close(store), "cannot close the store");
    for (uint32_t i = 0; i < REQUESTS; i++) {
        kept += requests[i].durable == KVT_OK || requests[i].durable == KVT_EXISTS;
        given_up += requests[i].durable == KVT_CANCELLED;
    }
    printf("%" PRIu32 " kept, %" PRIu32 " given up\n", kept, given_up);
    return kept + given_up == REQUESTS ? 0 : 1;
}
