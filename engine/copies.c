/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c - copies of blocks in HBM and HOST: where they lie, how they come and go.
 *
 * Every copy is a slot that its entry owns, a tier bit of the entry, and a copy to the policy; the
 * three change together, here.
 *
 * Threads   the loop; addresses of what is pinned, and entry_tiers(), any.
 */
#include "store_internal.h"

enum {
    HIDDEN_AT_ONCE = 1024, /* Looked at in one step of the loop. */
};

static const uint64_t hidden_again_ns = UINT64_C(1000) * 1000 * 1000;

/* A bad copy in HBM, or one that was moved within HOST: the entry has it no more, and those who had
 * pinned it may be reading. */
struct hidden_copy {
    struct hidden_copy *next;
    uint32_t number;
    enum policy_place place;
    struct slot slot;
};

static struct slot
host_slot(const struct kvt_store *store, const struct entry *entry)
{
    return slab_slot(store->slab, atomic_load_explicit(&entry->host_slot, memory_order_relaxed));
}

static struct slot
hbm_slot(const struct kvt_store *store, const struct entry *entry)
{
    return slab_slot(place_slab(store, place_of_device(entry_device(entry))),
        entry->hbm_slot & ((1u << HBM_DEVICE_SHIFT) - 1));
}

void *
entry_host_address(const struct kvt_store *store, const struct entry *entry)
{
    /* (R3) */
    uint32_t number = atomic_load_explicit(&entry->host_slot, memory_order_acquire);

    return slab_address(store->slab, (struct slot){.number = number});
}

void *
entry_hbm_address(const struct kvt_store *store, const struct entry *entry)
{
    return slab_address(place_slab(store, place_of_device(entry_device(entry))),
        (struct slot){.number = entry->hbm_slot & ((1u << HBM_DEVICE_SHIFT) - 1)});
}

unsigned
entry_tiers(const struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));

    if ((tiers & TIER_HBM) != 0 && device_is_lost(store, entry_device(entry)))
        tiers &= ~(unsigned)TIER_HBM;
    return tiers;
}

enum kvt_status
entry_prepare(struct kvt_store *store, uint32_t number)
{
    return store->policy->ops->prepare(store->policy, number);
}

void
entry_unprepare(struct kvt_store *store, uint32_t number)
{
    store->policy->ops->unprepare(store->policy, number);
}

static unsigned
tier_of_place(enum policy_place place)
{
    return place == POLICY_HOST ? TIER_HOST : TIER_HBM;
}

/* Note in the entry where the copy is. */
static void
slot_note(struct kvt_store *store, uint32_t number, enum policy_place place, struct slot slot)
{
    struct entry *entry = residency_at(store->map, number);

    if (place != POLICY_HOST) {
        entry->hbm_slot = (uint32_t)(place - POLICY_HBM) << HBM_DEVICE_SHIFT | slot.number;
        return;
    }
    slab_own(store->slab, slot, number);
    atomic_store_explicit(&entry->host_slot, slot.number, memory_order_release); /* (R3) */
}

uint64_t
copy_bytes(const struct kvt_store *store, enum policy_place place, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);

    return slab_slot_bytes(place_slab(store, place),
        place == POLICY_HOST ? host_slot(store, entry) : hbm_slot(store, entry));
}

/* The policy hears of a copy; so do the shares, when there are any. */
static void
copy_note(
    struct kvt_store *store, enum policy_place place, uint32_t number, enum kvt_event_reason reason)
{
    event_add(store, number, tier_of_place(place), KVT_EVENT_STORED, reason);
    /* A policy may note here when a block came that an open has found. */
    store->nvme_use_sum -= entry_use_share(store, number);
    store->policy->ops->add(store->policy, place, number);
    store->nvme_use_sum += entry_use_share(store, number);
    /* It came, then the device was lost, and now it is known: after the sweep. */
    if (place != POLICY_HOST && device_is_lost(store, (uint32_t)(place - POLICY_HBM)))
        store->devices.has_remains = true;
    if (store->has_shares)
        shares_add(store, number, share_of_place(place), copy_bytes(store, place, number));
}

void
entry_copy_add(struct kvt_store *store, uint32_t number, enum policy_place place, struct slot slot,
    enum kvt_event_reason reason)
{
    slot_note(store, number, place, slot);
    residency_tier_set(store->map, number, tier_of_place(place));
    copy_note(store, place, number, reason);
}

void
entry_publish(struct kvt_store *store, uint32_t number, const struct slot *hbm,
    const struct slot *host, uint32_t device)
{
    if (hbm != NULL)
        slot_note(store, number, place_of_device(device), *hbm);
    if (host != NULL)
        slot_note(store, number, POLICY_HOST, *host);
    residency_publish(
        store->map, number, (hbm != NULL ? TIER_HBM : 0u) | (host != NULL ? TIER_HOST : 0u));
    if (hbm != NULL)
        copy_note(store, place_of_device(device), number, KVT_REASON_PUT);
    if (host != NULL)
        copy_note(store, POLICY_HOST, number, KVT_REASON_PUT);
}

void
copy_slot_put(struct kvt_store *store, enum policy_place place, struct slot slot,
    const struct device_move *move)
{
    /* What was in flight when its device was lost may still arrive: never in another block. */
    if (move->status == KVT_E_GPU && move->is_begun)
        COUNT(store, slot_stranded_count, 1);
    else
        room_put(store, place, slot);
}

/* --- Leaving ---------------------------------------------------------------------------------- */

static void
copy_remove(
    struct kvt_store *store, enum policy_place place, uint32_t number, enum kvt_event_reason reason)
{
    event_add(store, number, tier_of_place(place), KVT_EVENT_REMOVED, reason);
    store->policy->ops->remove(store->policy, place, number);
    if (store->has_shares)
        shares_remove(store, number, share_of_place(place), copy_bytes(store, place, number));
}

static bool
host_copy_leave(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    struct slot slot = host_slot(store, residency_at(store->map, number));

    if (!residency_tier_clear(store->map, number, TIER_HOST))
        return false;
    copy_remove(store, POLICY_HOST, number, reason);
    room_put(store, POLICY_HOST, slot);
    return true;
}

bool
entry_host_release(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    return !pins_hold(store, number) && host_copy_leave(store, number, reason);
}

bool
entry_host_condemn(struct kvt_store *store, uint32_t number)
{
    return host_copy_leave(store, number, KVT_REASON_CORRUPT);
}

bool
entry_hbm_release(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    const struct entry *entry = residency_at(store->map, number);
    enum policy_place place = place_of_device(entry_device(entry));
    struct slot slot = hbm_slot(store, entry);

    /* A kvt_pin() keeps what can be read. */
    if (pins_hold(store, number) && !device_is_lost(store, entry_device(entry)))
        return false;
    if (!residency_tier_clear(store->map, number, TIER_HBM))
        return false;
    copy_remove(store, place, number, reason);
    room_put(store, place, slot);
    return true;
}

static void
hidden_add(struct kvt_store *store, struct hidden_copy *hidden, uint32_t number,
    enum policy_place place, struct slot slot)
{
    *hidden = (struct hidden_copy){
        .next = store->hidden.first, .number = number, .place = place, .slot = slot};
    store->hidden.first = hidden;
    store->hidden.is_due = true;
}

bool
entry_hbm_hide(struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    struct hidden_copy *hidden = env_take(&store->env, sizeof(*hidden));

    if (hidden == NULL)
        return false;
    hidden_add(store, hidden, number, place_of_device(entry_device(entry)), hbm_slot(store, entry));
    entries_at(store->entries, number)->is_hiding = true;
    residency_tier_hide(store->map, number, TIER_HBM);
    copy_remove(store, hidden->place, number, KVT_REASON_CORRUPT);
    return true;
}

/* --- Moving within HOST ----------------------------------------------------------------------- */

bool
entry_host_is_movable(const struct kvt_store *store, uint32_t number, struct slot slot)
{
    const struct entry *entry = residency_at(store->map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    return word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_HOST) != 0 &&
           host_slot(store, entry).number == slot.number && word_pins(word) == 0;
}

bool
entry_host_move(struct kvt_store *store, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    struct hidden_copy *hidden = env_take(&store->env, sizeof(*hidden));
    struct slot from = host_slot(store, entry);
    struct slot to;

    KVT_ASSERT(entries_at(store->entries, number)->flight == NULL); /* They have pins. */
    if (hidden == NULL || !slab_take_beside(store->slab, from, &to)) {
        env_put(&store->env, hidden, sizeof(*hidden));
        return false;
    }
    /* Nobody writes to a copy. Zeros follow up to the page. */
    memcpy(slab_address(store->slab, to), slab_address(store->slab, from),
        round_up(entry->length, PAGE_BYTES));
    slot_note(store, number, POLICY_HOST, to);
    /* (R3) A lookup may have pinned it meanwhile, and read from where it was. */
    if (!residency_settle(store->map, number)) {
        hidden_add(store, hidden, number, POLICY_HOST, from);
        return true;
    }
    env_put(&store->env, hidden, sizeof(*hidden));
    room_put(store, POLICY_HOST, from);
    return true;
}

bool
entry_is_hiding(const struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);

    return entries_at(store->entries, number)->is_hiding &&
           word_pins(atomic_load_explicit(&entry->word, memory_order_relaxed)) != 0;
}

/* Somebody may be reading it. The number may be another block's by now: for its pins, too. */
static bool
hidden_is_pinned(const struct kvt_store *store, const struct hidden_copy *hidden)
{
    const struct entry *entry = residency_at(store->map, hidden->number);

    /* (R2) */
    return word_pins(atomic_load_explicit(&entry->word, memory_order_acquire)) != 0;
}

/* The one that *link leads to: its slot can be used again. */
static void
hidden_free(struct kvt_store *store, struct hidden_copy **link)
{
    struct hidden_copy *hidden = *link;

    *link = hidden->next;
    if (hidden->place != POLICY_HOST)
        entries_at(store->entries, hidden->number)->is_hiding = false;
    room_put(store, hidden->place, hidden->slot);
    env_put(&store->env, hidden, sizeof(*hidden));
}

/* No round has come to them. */
void
hidden_newest_free(struct kvt_store *store, const struct hidden_copy *first)
{
    struct hidden_copy **link = &store->hidden.first;

    while (*link != first) {
        if (hidden_is_pinned(store, *link))
            link = &(*link)->next;
        else
            hidden_free(store, link);
    }
}

/* A round begins when pins may have gone, and after some time: those of lookups go in silence. */
static void
hidden_round_next(struct kvt_store *store)
{
    struct hidden_copies *copies = &store->hidden;

    if (copies->next != NULL || copies->first == NULL ||
        (!copies->is_due && store->now_ns < copies->again_ns))
        return;
    copies->next = &copies->first;
    copies->is_due = false;
}

bool
hidden_copies_step(struct kvt_store *store)
{
    struct hidden_copies *copies = &store->hidden;
    bool was_busy;

    copies->is_due |= store->room_changed && copies->first != NULL;
    hidden_round_next(store);
    was_busy = copies->next != NULL;
    for (uint32_t i = 0; i < HIDDEN_AT_ONCE && copies->next != NULL; i++) {
        struct hidden_copy *hidden = *copies->next;

        if (hidden == NULL) {
            copies->next = NULL;
            copies->again_ns = store->now_ns + hidden_again_ns;
        } else if (hidden_is_pinned(store, hidden)) {
            copies->next = &hidden->next;
        } else {
            hidden_free(store, copies->next);
        }
    }
    return was_busy;
}

uint64_t
hidden_copies_next_ns(const struct kvt_store *store)
{
    return store->hidden.first == NULL ? UINT64_MAX : store->hidden.again_ns;
}

void
hidden_copies_close(struct kvt_store *store)
{
    while (store->hidden.first != NULL) {
        struct hidden_copy *hidden = store->hidden.first;

        store->hidden.first = hidden->next;
        env_put(&store->env, hidden, sizeof(*hidden));
    }
}

void
copies_forget(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    for (uint32_t i = 0; i < POLICY_NVME; i++) {
        if (entries_has_copy(store->entries, (enum policy_place)i, number))
            copy_remove(store, (enum policy_place)i, number, reason);
    }
}

void
copies_free(struct kvt_store *store, const struct entry *was, unsigned tiers)
{
    if ((tiers & TIER_HOST) != 0)
        room_put(store, POLICY_HOST, host_slot(store, was));
    if ((tiers & TIER_HBM) != 0)
        room_put(store, place_of_device(entry_device(was)), hbm_slot(store, was));
}
