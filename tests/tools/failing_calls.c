/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing_calls.c - for a kvtool of its own, which is compiled to call these functions instead of
 * the library's: KVT_FAIL_CALL=kvt_lookup:5 has the fifth call of that one fail with KVT_E_NOMEM,
 * KVT_KILL_CALL=kvt_lookup:5 ends the process there, KVT_STOP_CALL=kvt_lookup:5 stops it until it
 * is sent SIGCONT. KVT_LATE_CALL=kvt_put_submit:5 has the fifth put say KVT_E_IO when it is there,
 * as when its commit has failed. KVT_UNREAD_KEY=name: gets of that key miss, and it stays, as a
 * block whose page the disk cannot read. KVT_UNREAD_SEGMENTS=2: the statistics say that a rebuild
 * could not read all headers of so many.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#undef kvt_lookup
#undef kvt_get_submit
#undef kvt_put_submit
#undef kvt_delete_submit
#undef kvt_stats_get
#include "kvtier/kvtier.h"

enum kvt_status failing_lookup(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, uint8_t *tiers_out, uint32_t *leading_out, kvt_lease *lease_out);
enum kvt_status failing_get_submit(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets,
    uint32_t count, const struct kvt_submit *submit, kvt_ticket **ticket_out);
enum kvt_status failing_put_submit(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts,
    uint32_t count, enum kvt_durability durability, const struct kvt_submit *submit,
    kvt_ticket **ticket_out);
enum kvt_status failing_delete_submit(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, const struct kvt_submit *submit,
    kvt_ticket **ticket_out);
enum kvt_status failing_stats_get(kvt_store *store, struct kvt_stats *stats_out);

/* Whether this call of the function is the one that the variable names. */
static bool
call_is_meant(const char *variable, const char *function, uint64_t call_count)
{
    const char *wish = getenv(variable);
    size_t length = strlen(function);

    return wish != NULL && strncmp(wish, function, length) == 0 && wish[length] == ':' &&
           strtoull(wish + length + 1, NULL, 10) == call_count;
}

/* Whether this call of the function is to fail. */
static bool
call_fails(const char *function, uint64_t *call_count)
{
    ++*call_count;
    if (call_is_meant("KVT_KILL_CALL", function, *call_count))
        raise(SIGKILL);
    if (call_is_meant("KVT_STOP_CALL", function, *call_count))
        raise(SIGSTOP);
    return call_is_meant("KVT_FAIL_CALL", function, *call_count);
}

enum kvt_status
failing_lookup(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint8_t *tiers_out, uint32_t *leading_out, kvt_lease *lease_out)
{
    static uint64_t call_count;

    if (call_fails("kvt_lookup", &call_count))
        return KVT_E_NOMEM;
    return kvt_lookup(store, ns, keys, count, tiers_out, leading_out, lease_out);
}

enum kvt_status
failing_get_submit(kvt_store *store, kvt_namespace ns, const struct kvt_get *gets, uint32_t count,
    const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    static uint64_t call_count;
    const char *unread = getenv("KVT_UNREAD_KEY");
    struct kvt_get other = gets[0];

    if (call_fails("kvt_get_submit", &call_count))
        return KVT_E_NOMEM;
    if (unread != NULL && count == 1 && other.key.length == strlen(unread) &&
        memcmp(other.key.bytes, unread, strlen(unread)) == 0) {
        other.key = (struct kvt_key){.bytes = "no such block", .length = 13};
        gets = &other;
    }
    return kvt_get_submit(store, ns, gets, count, submit, ticket_out);
}

enum kvt_status
failing_put_submit(kvt_store *store, kvt_namespace ns, const struct kvt_put *puts, uint32_t count,
    enum kvt_durability durability, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    static uint64_t call_count;
    enum kvt_status status;

    if (call_fails("kvt_put_submit", &call_count))
        return KVT_E_NOMEM;
    status = kvt_put_submit(store, ns, puts, count, durability, submit, ticket_out);
    if (status != KVT_OK || !call_is_meant("KVT_LATE_CALL", "kvt_put_submit", call_count))
        return status;
    status = kvt_ticket_wait(*ticket_out, KVT_STAGE_DURABLE, KVT_FOREVER);
    kvt_ticket_free(*ticket_out);
    *ticket_out = NULL;
    return status == KVT_OK ? KVT_E_IO : status;
}

enum kvt_status
failing_delete_submit(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    static uint64_t call_count;

    if (call_fails("kvt_delete_submit", &call_count))
        return KVT_E_NOMEM;
    return kvt_delete_submit(store, ns, keys, count, submit, ticket_out);
}

enum kvt_status
failing_stats_get(kvt_store *store, struct kvt_stats *stats_out)
{
    enum kvt_status status = kvt_stats_get(store, stats_out);
    const char *unread = getenv("KVT_UNREAD_SEGMENTS");

    if (unread != NULL)
        stats_out->recover_unread_count = strtoull(unread, NULL, 10);
    return status;
}
