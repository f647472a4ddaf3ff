/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - the counters and latencies. One line here is the name in code, in kvtool and in the
 * documents. Part of the public interface: lines are only ever appended, and only by a new minor
 * version (libkvtier.so.0.MINOR): one more counter moves the latencies, which lie behind them.
 *
 * Counters only grow while a store is open. A gauge ends in _now. The unit is the name's last word
 * (before _now). Of a get with KVT_GET_BY_PART each part counts as a block: in the counters that
 * begin with get_ or miss_, and in cancel_count.
 */
#ifndef KVTIER_STATS_H
#define KVTIER_STATS_H

#include <stdint.h>

#define KVT_COUNTERS(X)                                                                        \
    X(lookup_count, "keys that were looked up")                                                \
    X(lookup_hit_host_count, "keys found with a copy in pinned memory and none in HBM")        \
    X(lookup_hit_nvme_count, "keys found with a copy on NVMe only")                            \
    X(lookup_miss_count, "keys that no tier holds")                                            \
    X(get_host_count, "blocks read from pinned memory")                                        \
    X(get_host_bytes, "payload bytes of these")                                                \
    X(get_nvme_count, "blocks read from NVMe, verified")                                       \
    X(get_nvme_bytes, "payload bytes of these")                                                \
    X(get_miss_count, "blocks asked for that no tier holds")                                   \
    X(put_count, "blocks that a put made visible")                                             \
    X(put_bytes, "payload bytes of these")                                                     \
    X(put_exists_count, "blocks put that were there already, or in flight")                    \
    X(put_refused_count, "blocks put that found no room or memory, or whose device is lost")   \
    X(durable_count, "blocks whose commit succeeded")                                          \
    X(durable_bytes, "payload bytes of these")                                                 \
    X(delete_count, "blocks deleted by the caller")                                            \
    X(host_evict_count, "copies dropped from pinned memory that NVMe or HBM holds, too")       \
    X(host_demote_count, "blocks queued for NVMe because pinned memory was full")              \
    X(host_drop_count, "blocks dropped from pinned memory that no other tier held")            \
    X(nvme_evict_count, "blocks that left NVMe when their segment was reclaimed")              \
    X(nvme_relocate_count, "blocks rewritten when their segment was reclaimed")                \
    X(nvme_relocate_bytes, "bytes of these")                                                   \
    X(segment_recycle_count, "segments reclaimed")                                             \
    X(batch_count, "write batches made durable, but for those of relocations")                 \
    X(batch_failed_count, "write batches lost to a failed write or sync, relocations' too")    \
    X(commit_count, "commits of the index, failed ones too, but for those of relocations")     \
    X(commit_failed_count, "commits of the index that failed, relocations' too")               \
    X(corrupt_count, "reads whose checksum, key or generation differed: answered as misses")   \
    X(read_failed_count, "reads that the device failed: answered as misses")                   \
    X(recover_block_count, "blocks found when the store was opened")                           \
    X(recover_dropped_count, "records refused when the store was opened")                      \
    X(recover_rebuilt_count, "1 when the index was rebuilt from the segments at open")         \
    X(lease_count, "leases granted")                                                           \
    X(lease_stale_count, "releases of a lease that was gone already")                          \
    X(entry_leak_count, "entries lost for want of memory to remember them")                    \
    X(entry_count_now, "blocks in the map")                                                    \
    X(lease_count_now, "leases out")                                                           \
    X(host_capacity_bytes_now, "size of the HOST tier")                                        \
    X(host_used_bytes_now, "slots taken in it")                                                \
    X(host_dirty_bytes_now, "slots whose block is not yet durable and shall be")               \
    X(nvme_capacity_bytes_now, "size of the NVME tier")                                        \
    X(nvme_used_bytes_now, "bytes of it in segments that are not free")                        \
    X(nvme_live_bytes_now, "whole pages of live blocks")                                       \
    X(index_map_bytes_now, "size of the LMDB file")                                            \
    X(index_used_bytes_now, "pages in use in it")                                              \
    X(namespace_count_now, "namespaces")                                                       \
    X(kill_lost_count, "marks of dead copies lost (no memory, a header that cannot be read)")  \
    X(lookup_hit_hbm_count, "keys found with a copy in HBM (and counted nowhere else)")        \
    X(get_hbm_count, "blocks read from HBM")                                                   \
    X(get_hbm_bytes, "payload bytes of these")                                                 \
    X(hbm_evict_count, "copies dropped from HBM that a lower tier holds")                      \
    X(hbm_lower_count, "blocks copied from HBM to pinned memory")                              \
    X(hbm_lower_bytes, "payload bytes of these")                                               \
    X(hbm_raise_count, "blocks copied from pinned memory to HBM")                              \
    X(hbm_raise_bytes, "payload bytes of these")                                               \
    X(hbm_drop_count, "blocks dropped from HBM that no other tier held, or lost with it")      \
    X(gpu_lost_count, "devices lost")                                                          \
    X(prefetch_count, "blocks that a prefetch brought to its tier, also down from HBM")        \
    X(hbm_capacity_bytes_now, "size of the HBM tier, all devices together")                    \
    X(hbm_used_bytes_now, "slots taken in it")                                                 \
    X(slot_stranded_count, "slots not used again because a lost device may still write there") \
    X(cancel_count, "blocks of requests that were cancelled before they began")                \
    X(pin_count_now, "blocks that kvt_pin() keeps where they are")                             \
    X(pin_bytes_now, "whole pages of these")                                                   \
    X(reservation_count_now, "reservations out")                                               \
    X(get_part_count, "gets of some parts of a block")                                         \
    X(codec_in_bytes, "payload bytes of blocks that were encoded for NVMe")                    \
    X(codec_out_bytes, "stored bytes of these")                                                \
    X(codec_raw_count, "parts that were not encoded because it would save too little")         \
    X(codec_decode_bytes, "payload bytes of parts that were decoded")                          \
    X(engram_page_count, "pages of N-gram tables read for fetches")                            \
    X(engram_page_lost_count, "such pages that were unreadable or damaged")                    \
    X(load_bytes, "bytes of files loaded to devices")                                          \
    X(load_lost_count, "chunks of files that could not be read or copied")                     \
    X(load_device_bytes_now, "memory of devices that loads have taken")                        \
    X(engram_pinned_page_count, "pages that fetches took from pinned rows instead")            \
    X(engram_pinned_bytes_now, "host memory of pinned rows of N-gram tables")                  \
    X(engram_cache_row_count, "rows that were looked for in a cache of rows that is in use")   \
    X(engram_cache_hit_count, "of these found")                                                \
    X(engram_cache_sample_count, "rows by which it is measured what a cache would find")       \
    X(engram_cache_sample_hit_count, "of these that it would have")                            \
    X(engram_cache_on_now, "caches of rows in use, because they pay")                          \
    X(engram_cache_worth_ns_now, "saved by a row looked for, in the cache judged last")        \
    X(engram_cache_cost_ns_now, "what that takes")                                             \
    X(miss_unknown_count, "first misses of blocks never stored, forgotten, or being replaced") \
    X(miss_evicted_count, "of blocks that were given up for room")                             \
    X(miss_refused_count, "of blocks that were not worth a write to NVMe")                     \
    X(miss_damaged_count, "of blocks that were damaged, or that the device could not read")    \
    X(miss_deleted_count, "of blocks deleted, cleared, or put anew while they moved")          \
    X(miss_lost_count, "of blocks lost with a close, with a device, or by a put that failed")  \
    X(prefetch_skip_count, "hits of lookups whose prefetch found no ticket, or no memory")     \
    X(get_peer_count, "reads from HBM begun by another device than the block's")               \
    X(engram_cache_device_row_count, "as engram_cache_row_count, of caches on devices")        \
    X(engram_cache_device_hit_count, "of these found")                                         \
    X(engram_cache_device_sample_count, "as engram_cache_sample_count, of these caches")       \
    X(engram_cache_device_sample_hit_count, "of these that it would have")                     \
    X(engram_cache_device_on_now, "caches of rows on devices in use, because they pay")        \
    X(engram_cache_device_worth_ns_now, "saved by a row looked for, in the one judged last")   \
    X(engram_cache_device_cost_ns_now, "what that takes")                                      \
    X(map_evict_count, "blocks dropped from all tiers because entry_count_max was reached")    \
    X(recover_unread_count, "segments that a rebuild could not read all headers of")

#define KVT_LATENCIES(X)                                           \
    X(lookup_ns, "one kvt_lookup call")                            \
    X(get_host_ns, "a block from pinned memory, submit to answer") \
    X(get_nvme_ns, "a block from NVMe, submit to answer")          \
    X(put_visible_ns, "a put, submit to visible")                  \
    X(put_durable_ns, "a put, submit to durable")                  \
    X(commit_ns, "one commit, as commit_count has them")           \
    X(open_ns, "opening the store, recovery included")             \
    X(get_hbm_ns, "a block from HBM, submit to answer")            \
    X(encode_ns, "encoding one block on a worker")                 \
    X(decode_ns, "decoding what one get wants on a worker")

/* p50, p99, p999: upper edges of buckets at most 6.25 % wide. */
struct kvt_latency {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t p50_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
    uint64_t max_ns;
};

/* Set struct_size to sizeof(struct kvt_stats) before kvt_stats_get(). */
struct kvt_stats {
    uint32_t struct_size;
    uint32_t reserved0;
#define KVT_FIELD(name, text) uint64_t name;
    KVT_COUNTERS(KVT_FIELD)
#undef KVT_FIELD
#define KVT_FIELD(name, text) struct kvt_latency name;
    KVT_LATENCIES(KVT_FIELD)
#undef KVT_FIELD
};

#endif /* KVTIER_STATS_H */
