/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghosts.c - a hash table of buckets of eight.
 */
#include "ghosts.h"

enum {
    BUCKET_GHOSTS = 8,
    BUCKET_COUNT_MIN = 64,
};

struct ghost {
    uint32_t tag;  /* The fingerprint's upper half; its lower half chose the bucket. */
    uint32_t turn; /* 0: none here. */
};

struct ghost_bucket {
    struct ghost ghosts[BUCKET_GHOSTS];
};

void
ghosts_close(struct ghosts *ghosts, const struct kvt_env *env)
{
    env_put(env, ghosts->buckets, ghosts_bytes(ghosts));
    *ghosts = (struct ghosts){.buckets = NULL};
}

void
ghosts_reserve(struct ghosts *ghosts, const struct kvt_env *env, uint32_t count)
{
    struct ghost_bucket *buckets;
    uint32_t bucket_count = BUCKET_COUNT_MIN;

    if (count <= ghosts->bucket_count * (BUCKET_GHOSTS / 2))
        return;
    while (
        bucket_count < UINT32_MAX / 2 / BUCKET_GHOSTS && count > bucket_count * (BUCKET_GHOSTS / 2))
        bucket_count *= 2;
    buckets = env_take(env, bucket_count * sizeof(*buckets));
    if (buckets == NULL)
        return;
    env_put(env, ghosts->buckets, ghosts_bytes(ghosts));
    *ghosts = (struct ghosts){.buckets = buckets, .bucket_count = bucket_count};
}

static struct ghost_bucket *
bucket_of(const struct ghosts *ghosts, uint64_t fingerprint)
{
    return &ghosts->buckets[(uint32_t)fingerprint & (ghosts->bucket_count - 1)];
}

/* How many came after it. */
static uint32_t
ghost_age(const struct ghosts *ghosts, const struct ghost *ghost)
{
    return ghost->turn == 0 ? UINT32_MAX : ghosts->turn - ghost->turn;
}

void
ghosts_add(struct ghosts *ghosts, uint64_t fingerprint)
{
    uint32_t tag = (uint32_t)(fingerprint >> 32);
    struct ghost *oldest;
    struct ghost_bucket *bucket;

    if (ghosts->bucket_count == 0)
        return;
    bucket = bucket_of(ghosts, fingerprint);
    oldest = &bucket->ghosts[0];
    for (uint32_t i = 0; i < BUCKET_GHOSTS; i++) {
        struct ghost *ghost = &bucket->ghosts[i];

        if (ghost->turn != 0 && ghost->tag == tag) {
            oldest = ghost;
            break;
        }
        if (ghost_age(ghosts, ghost) > ghost_age(ghosts, oldest))
            oldest = ghost;
    }
    ghosts->turn = ghosts->turn == UINT32_MAX ? 1 : ghosts->turn + 1;
    *oldest = (struct ghost){.tag = tag, .turn = ghosts->turn};
}

bool
ghosts_take(struct ghosts *ghosts, uint64_t fingerprint, uint32_t window)
{
    struct ghost_bucket *bucket;

    if (ghosts->bucket_count == 0)
        return false;
    bucket = bucket_of(ghosts, fingerprint);
    for (uint32_t i = 0; i < BUCKET_GHOSTS; i++) {
        struct ghost *ghost = &bucket->ghosts[i];

        if (ghost->turn == 0 || ghost->tag != (uint32_t)(fingerprint >> 32))
            continue;
        if (ghost_age(ghosts, ghost) >= window)
            return false;
        ghost->turn = 0;
        return true;
    }
    return false;
}

size_t
ghosts_bytes(const struct ghosts *ghosts)
{
    return ghosts->bucket_count * sizeof(*ghosts->buckets);
}
