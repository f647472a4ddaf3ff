/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim.c - the order in which segments, and blocks in them, lose their place on NVMe.
 */
#include "victim.h"

#include <stdlib.h>

#include "batch_header.h"
#include "store_internal.h"
#include "victim_scan.h"

enum {
    GAIN_DIVISOR = 8,      /* A reclaim gains so much of a segment at least. */
    FREE_WANTED = 3,       /* Segments of a root: the reserve, and one to write into; ... */
    FREE_WANTED_LARGE = 4, /* ... with three puts into 64 segments are a twentieth slower. */
    LARGE_SEGMENTS = 64,   /* Of a root. */
};

/* --- Segments --------------------------------------------------------------------------------- */

bool
victim_is_writable(const struct kvt_store *store, const struct segment *segment)
{
    return nvme_root_is_writable(store->nvme, segment_root(segment->number));
}

bool
victim_root_is_short(const struct kvt_store *store, uint32_t root)
{
    uint64_t share = 100 - store->options.nvme_high_percent;
    uint64_t total = segment_total(store->segments, root);
    uint64_t wanted = total * share / 100;
    uint32_t least = total < LARGE_SEGMENTS ? FREE_WANTED : FREE_WANTED_LARGE;
    uint32_t free_count = segment_count_in(store->segments, root, SEGMENT_FREE);

    return nvme_root_is_writable(store->nvme, root) &&
           free_count + victim_scan_count(store, root) < (wanted < least ? least : wanted);
}

static bool
segment_is_eligible(struct kvt_store *store, const struct segment *segment)
{
    return segment->state == SEGMENT_SEALED && victim_is_writable(store, segment) &&
           segment->writer_count == 0 && segment->generation < UINT32_MAX - 1 &&
           !segment->is_passed_over && !segment->is_claimed && !commit_uses(store, segment->number);
}

/* Pages of batches with so many kills and nothing else. */
static uint32_t
kill_pages(uint32_t count)
{
    uint32_t rest = count % COMMIT_KILLS_MAX;

    return count / COMMIT_KILLS_MAX * batch_header_pages(0, COMMIT_KILLS_MAX) +
           (rest == 0 ? 0 : batch_header_pages(0, rest));
}

static uint32_t
segment_kill_pages(const struct kvt_store *store, const struct segment *segment)
{
    return kill_pages(segment_kills_left(store->segments, segment));
}

/* What lives in it, and its kills: they are written again when it is reclaimed. */
static uint64_t
kept_bytes(const struct kvt_store *store, const struct segment *segment)
{
    return segment->live_bytes + (uint64_t)segment_kill_pages(store, segment) * PAGE_BYTES;
}

/* Whether most of what SEALED segments hold is dead, on roots that take writes: then nothing alive
 * has to be lost. */
static bool
is_mostly_dead(struct kvt_store *store)
{
    const struct segment *segment;
    uint64_t bytes = 0;
    uint64_t count = 0;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state != SEGMENT_SEALED || !victim_is_writable(store, segment))
            continue;
        bytes += kept_bytes(store, segment);
        count++;
    }
    return bytes < count * store->file.segment_pages / 2 * PAGE_BYTES;
}

/* At most half of it is to be written again: what is written fills the segments that it goes to but
 * for a quarter, so room is gained. */
static bool
is_light(const struct kvt_store *store, uint64_t bytes)
{
    return bytes <= (uint64_t)store->file.segment_pages / 2 * PAGE_BYTES;
}

static bool
segment_goes_before(
    const struct kvt_store *store, const struct segment *a, const struct segment *b, bool by_bytes)
{
    uint64_t a_bytes = kept_bytes(store, a);
    uint64_t b_bytes = kept_bytes(store, b);
    bool is_a_light = is_light(store, a_bytes);
    bool is_b_light = is_light(store, b_bytes);
    /* Without blocks; and at most half of it are kills. */
    bool is_a_bare = is_a_light && a->live_bytes == 0;
    bool is_b_bare = is_b_light && b->live_bytes == 0;
    bool is_a_short = victim_root_is_short(store, segment_root(a->number));
    bool is_b_short = victim_root_is_short(store, segment_root(b->number));

    /* Where most is dead nothing is lost in either. */
    if (!by_bytes && is_a_short != is_b_short)
        return is_a_short;
    if (by_bytes && is_a_light != is_b_light)
        return is_a_light;
    if ((a->held_bytes > 0) != (b->held_bytes > 0))
        return b->held_bytes > 0;
    if (by_bytes && a_bytes != b_bytes)
        return a_bytes < b_bytes;
    return is_a_bare != is_b_bare ? is_a_bare : a->batch_number < b->batch_number;
}

struct segment *
victim_choose(struct kvt_store *store, bool is_for_shortage)
{
    struct segment *victim = NULL;
    struct segment *segment;
    bool by_bytes = is_mostly_dead(store);
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (!segment_is_eligible(store, segment))
            continue;
        /* It gains the short one nothing. */
        if (is_for_shortage && !by_bytes &&
            !victim_root_is_short(store, segment_root(segment->number)))
            continue;
        if (victim == NULL || segment_goes_before(store, segment, victim, by_bytes))
            victim = segment;
    }
    return victim;
}

/* The walk is for those that have something to find. */
static bool
is_any_recycling(const struct kvt_store *store)
{
    for (uint32_t root = 0; root < store->file.root_count; root++) {
        if (nvme_root_is_writable(store->nvme, root) &&
            segment_count_in(store->segments, root, SEGMENT_RECYCLING) > 0)
            return true;
    }
    return false;
}

struct segment *
victim_unfinished(struct kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;

    if (!is_any_recycling(store))
        return NULL;
    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_RECYCLING && victim_is_writable(store, segment) &&
            segment->generation < UINT32_MAX - 1 && !segment->is_passed_over &&
            !segment->is_claimed)
            return segment;
    }
    return NULL;
}

bool
victim_is_any_passed_over(const struct kvt_store *store)
{
    const struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->is_passed_over)
            return true;
    }
    return false;
}

void
victim_spare_none(struct kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL)
        segment->is_passed_over = false;
    segment_changed(store->segments);
}

bool
victim_spare_unreadable(struct kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;
    bool is_found = false;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (!segment->is_passed_over || !segment->was_unreadable)
            continue;
        segment->is_passed_over = false;
        is_found = true;
        segment_changed(store->segments);
    }
    return is_found;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* Last use of the average block on NVMe. */
static uint64_t
use_mean(const struct kvt_store *store)
{
    return store->nvme_copy_count == 0 ? 0 : store->nvme_use_sum / store->nvme_copy_count;
}

static uint32_t
resident_pages(struct kvt_store *store, const struct resident *resident)
{
    return pages_of(residency_at(store->map, resident->number)->stored_length);
}

static bool
resident_is_pinned(struct kvt_store *store, const struct resident *resident)
{
    return pins_hold(store, resident->number) ||
           word_pins(atomic_load_explicit(
               &residency_at(store->map, resident->number)->word, memory_order_acquire)) != 0;
}

static int
number_compare(const void *a, const void *b)
{
    const struct resident *left = a;
    const struct resident *right = b;

    return (left->number > right->number) - (left->number < right->number);
}

/* Pinned ones, then what the policy finds most important, then what lies higher in its tree. */
static int
resident_compare(const void *a, const void *b)
{
    const struct resident *left = a;
    const struct resident *right = b;

    if (left->is_pinned != right->is_pinned)
        return left->is_pinned ? -1 : 1;
    if (left->importance != right->importance)
        return left->importance > right->importance ? -1 : 1;
    if (left->depth != right->depth)
        return left->depth < right->depth ? -1 : 1;
    return left->extent.page < right->extent.page ? -1 : left->extent.page > right->extent.page;
}

/* Those in front stay pinned, or the most important. */
static void
residents_sort(struct resident *residents, uint32_t count)
{
    if (count > 0)
        qsort(residents, count, sizeof(*residents), resident_compare);
}

/* A namespace that has more than its share may lose what it has above that, from the least
 * important on. The rest is pinned: while this goes, what it has falls. */
static void
shares_keep(struct kvt_store *store, struct resident *residents, uint32_t count)
{
    residents_sort(residents, count);
    for (uint32_t i = 0; i < count; i++)
        entry_namespace(store, residents[i].number)->leaving_bytes = 0;
    for (uint32_t i = count; i-- > 0;) {
        struct namespace_state *space = entry_namespace(store, residents[i].number);
        uint64_t left_bytes = space->used_bytes[SHARE_NVME] - space->leaving_bytes;

        if (residents[i].is_pinned)
            continue;
        if (left_bytes <= space->share_bytes[SHARE_NVME])
            residents[i].is_pinned = true;
        else
            space->leaving_bytes += (uint64_t)resident_pages(store, &residents[i]) * PAGE_BYTES;
    }
}

/* What the choice asks of each of them; they are in the order of their numbers afterwards. */
static void
residents_know(struct kvt_store *store, struct resident *residents, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct resident *resident = &residents[i];
        const struct entry_state *state = entries_at(store->entries, resident->number);

        resident->importance = store->policy->ops->importance(store->policy, resident->number);
        resident->last_use = state->last_use;
        resident->depth = state->depth;
        resident->child_count = state->child_count;
        resident->is_pinned = resident_is_pinned(store, resident);
        resident->is_expendable = false;
    }
    if (store->has_shares)
        shares_keep(store, residents, count);
    if (count > 0)
        qsort(residents, count, sizeof(*residents), number_compare);
    for (uint32_t i = 0; i < count; i++) {
        const struct resident wanted = {
            .number = entries_parent(store->entries, residents[i].number)};
        const struct resident *parent =
            bsearch(&wanted, residents, count, sizeof(*residents), number_compare);

        residents[i].parent_at = parent == NULL ? RESIDENT_NONE : (uint32_t)(parent - residents);
    }
}

/* In another tier: the block stays in the map without its copy on NVMe. */
static bool
resident_is_elsewhere(struct kvt_store *store, const struct resident *resident)
{
    const struct entry *entry = residency_at(store->map, resident->number);

    return word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed)) != TIER_NVME;
}

/* Chains go from their ends. */
static void
ends_find(struct kvt_store *store, struct resident *residents, uint32_t count, uint64_t mean)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;

        while (at != RESIDENT_NONE) {
            struct resident *end = &residents[at];

            if (end->is_expendable || end->is_pinned || end->child_count > 0 ||
                end->last_use > mean)
                break;
            end->is_expendable = true;
            at = resident_is_elsewhere(store, end) ? RESIDENT_NONE : end->parent_at;
            if (at != RESIDENT_NONE)
                residents[at].child_count--;
        }
    }
}

/* The others in front. Returns how many they are. */
static uint32_t
ends_part(struct resident *residents, uint32_t count)
{
    uint32_t kept_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct resident resident = residents[i];

        if (resident.is_expendable)
            continue;
        residents[i] = residents[kept_count];
        residents[kept_count++] = resident;
    }
    return kept_count;
}

/* Pages that one root can take, less a share for headers. Unless `takes_last`: beside its last FREE
 * segment, or, when it has none, the ACTIVE one: nvme_put_reserved(). */
static uint32_t
room_to_move(const struct kvt_store *store, bool takes_last)
{
    uint64_t kept_count = takes_last ? 0 : 1;
    uint64_t most = 0;

    for (uint32_t root = 0; root < store->file.root_count; root++) {
        const struct segment *active = segment_active(store->segments, root);
        uint64_t count = segment_count_in(store->segments, root, SEGMENT_FREE);
        uint64_t pages = 0;

        if (count >= kept_count)
            pages = (count - kept_count) * (store->file.segment_pages - SEGMENT_HEAD_PAGES_MAX);
        if (count >= kept_count && active != NULL)
            pages += store->file.segment_pages - active->fill_page;
        if (pages > most && nvme_root_is_writable(store->nvme, root))
            most = pages;
    }
    most -= most / 8;
    return most < store->file.segment_pages ? (uint32_t)most : store->file.segment_pages;
}

/* Whether another segment can be reclaimed, or will be next, of which less is to be written again.
 * This one was chosen by its age, or it came to be after that: a write that fails closes its
 * segment, and takes room from what is written again. */
static bool
is_another_emptier(struct kvt_store *store, const struct segment *victim)
{
    uint64_t bytes = kept_bytes(store, victim);
    const struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        bool is_next = segment->is_claimed && segment->state == SEGMENT_SEALED;

        if ((is_next || segment_is_eligible(store, segment)) && kept_bytes(store, segment) < bytes)
            return true;
    }
    return false;
}

bool
victim_is_last(struct kvt_store *store, const struct segment *victim)
{
    const struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment != victim && (segment->is_claimed || segment_is_eligible(store, segment)))
            return false;
    }
    return true;
}

bool
victim_gains(struct kvt_store *store, struct segment *victim, uint32_t kill_count)
{
    uint32_t pages = kill_pages(kill_count);

    segment_kills_note(store->segments, victim, kill_count);
    return pages <= store->file.segment_pages - store->file.segment_pages / GAIN_DIVISOR;
}

static uint32_t
less(uint32_t pages, uint32_t taken)
{
    return pages > taken ? pages - taken : 0;
}

uint32_t
victim_survivors(struct kvt_store *store, struct resident *residents, uint32_t count,
    bool takes_last, uint64_t *credit_bytes)
{
    const struct segment *victim =
        count == 0 ? NULL : segment_at(store->segments, residents[0].extent.segment);
    bool mostly_dead = victim != NULL && is_mostly_dead(store);
    bool keeps_all = mostly_dead && is_light(store, kept_bytes(store, victim));
    /* Its kills go first. */
    uint32_t taken = victim == NULL ? 0 : segment_kill_pages(store, victim);
    uint32_t room = less(room_to_move(store, takes_last), taken);
    uint32_t most = less(store->file.segment_pages / 2, taken);
    uint32_t half = room < most ? room : most; /* For what must stay. */
    uint32_t earned = half;                    /* For the others. */
    uint32_t moved_pages = 0;
    uint32_t kept_count = 0;
    uint32_t left_count; /* Without the ends of chains that go. */

    if (earned > *credit_bytes / PAGE_BYTES)
        earned = (uint32_t)(*credit_bytes / PAGE_BYTES);
    if (mostly_dead && !keeps_all && is_another_emptier(store, victim))
        return VICTIM_UNMOVABLE;
    fates_cut(store, ENTRY_NONE);
    residents_know(store, residents, count);
    if (!keeps_all)
        ends_find(store, residents, count, use_mean(store));
    left_count = ends_part(residents, count);
    residents_sort(residents, left_count);
    for (uint32_t i = 0; i < left_count; i++) {
        const struct resident resident = residents[i];
        uint32_t pages = resident_pages(store, &resident);
        bool must_stay = resident.is_pinned || keeps_all || resident.child_count > 0;
        uint32_t limit = keeps_all || resident.is_pinned ? half : earned;
        bool fits = moved_pages + pages <= limit;

        if (!fits && (resident.is_pinned || (keeps_all && is_another_emptier(store, victim))))
            return VICTIM_UNMOVABLE;
        if (!fits)
            break;
        /* Asked last: what the policy says yes to counts as written. */
        if (!must_stay && !store->policy->ops->admits(store->policy, resident.number))
            continue;
        if (!must_stay)
            fates_cut(store, resident.number);
        moved_pages += pages;
        residents[i] = residents[kept_count];
        residents[kept_count++] = resident;
    }
    if (store->has_shares && kept_count < count)
        residents_sort(&residents[kept_count], count - kept_count);
    if (!keeps_all) {
        uint64_t bytes = (uint64_t)moved_pages * PAGE_BYTES;

        *credit_bytes -= bytes < *credit_bytes ? bytes : *credit_bytes;
    }
    return kept_count;
}
