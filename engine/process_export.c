/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_export.c - what is handed to other processes: the HBM tier of a device; and whether what
 * another process handed over is whole.
 */
#include "processes.h"
#include "store_internal.h"

_Static_assert(sizeof(struct kvt_share) == 72, "it is carried between processes as it is");

static uint32_t
share_sum(const struct kvt_share *share)
{
    struct kvt_share plain = *share;

    plain.check = 0;
    return crc32c(0, &plain, sizeof(plain));
}

void
share_seal(struct kvt_share *share)
{
    share->magic = KVT_SHARE_MAGIC;
    share->struct_size = sizeof(*share);
    share->check = share_sum(share);
}

enum kvt_status
share_check(const struct kvt_share *share, enum kvt_share_kind kind)
{
    if (share == NULL)
        return failure_set(KVT_E_INVAL, 0, "share is NULL");
    if (share->magic != KVT_SHARE_MAGIC || share->struct_size != sizeof(*share))
        return failure_set(KVT_E_FORMAT, 0,
            "a share of %u bytes with the mark 0x%x is none of this version", share->struct_size,
            share->magic);
    if (share->check != share_sum(share))
        return failure_set(KVT_E_FORMAT, 0, "the share was damaged on its way");
    if (share->kind != kind)
        return failure_set(KVT_E_INVAL, 0, "the share is of %s",
            kind == KVT_SHARE_HBM ? "an event, not of memory" : "memory, not of an event");
    return KVT_OK;
}

enum kvt_status
kvt_hbm_export(kvt_store *store, uint32_t device, struct kvt_share *share_out, int *descriptor_out)
{
    struct kvt_share share = {.kind = KVT_SHARE_HBM, .device = device};
    struct device *handle;
    int descriptor;

    if (share_out == NULL || descriptor_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "share_out or descriptor_out is NULL");
    KVT_TRY(store_enter(store));
    if (!device_is_open(store, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device);
    descriptor = hbm_descriptor(store->devices.tiers[device], &share.bytes);
    if (descriptor < 0)
        return failure_set(KVT_E_STATE, 0, "the store was opened without KVT_OPEN_SHARE_HBM");
    handle = hbm_device(store->devices.tiers[device]);
    KVT_TRY(device_answer(store, device, handle->ops->share->identity(handle, share.device_id)));
    share.device_kind = store->options.device_kind;
    memcpy(share.store, store->file.uuid, sizeof(share.store));
    share_seal(&share);
    *share_out = share;
    *descriptor_out = descriptor;
    return KVT_OK;
}
