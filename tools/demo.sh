#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make demo: a recorded half hour of a production LLM service, replayed through a store, with SIGKILL half-way.
#
#   1. A process replays the first half. Blocks are made in memory of the device (a GPU, or its emulation) and put to
#      HBM; those of every fourth request are to be durable, the others may move down as room is needed. Every key
#      that the store calls durable goes through a pipe to this script: when its put's ticket says so, and, just
#      before the end, when a scan of the store shows that it has moved down to NVMe. Then the process kills itself
#      with SIGKILL.
#   2. A new process opens the store, reads and verifies every one of those blocks, and replays the second half.
#
# Everything lies in build/demo; the store stays there. Options of the environment: DEMO_REQUESTS (6015, all),
# DEMO_DEVICE (auto; cuda, emulation).
set -euo pipefail
cd "$(dirname "$0")/.."

trace=bench/traces/conversation_h1.jsonl.zst
folder=build/demo
store=$folder/store
tierbench=build/bin/tierbench
requests=${DEMO_REQUESTS:-6015}
half=$((requests * 3000 / 6015))
acknowledged_min=$((requests == 6015 ? 10000 : 1))
# 94,174 blocks of 64 KiB are 5.75 GiB. HBM holds a fiftieth of them, HOST a twentieth; NVMe holds all that the first
# half puts, but not all of both halves, so that segments are reclaimed in the second.
sizes=(--block-bytes 64K --hbm 2% --device "${DEMO_DEVICE:-auto}" --host 5% --nvme 80% --durable-every 4)
disk_kib=$((6 << 20)) # 4.6 GiB of NVMe tier, the index, and a file to measure the disk with.

mkdir -p "$folder"
rm -rf "$store"
free_kib=$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')
if [ "$free_kib" -lt "$disk_kib" ]; then
    echo "demo: needs $((disk_kib >> 20)) GiB of disk below $folder, and there are $((free_kib >> 20)) GiB free" >&2
    exit 1
fi

echo "Half an hour of a production chat service (Mooncake's conversation trace, bench/traces/README.md):"
echo "6,015 requests, 147,000 accesses to 94,174 different blocks of 512 tokens, here of 64 KiB each."
echo
echo "1. The first half goes through a new store; then SIGKILL."
status=0
# The shell would report the kill on its own stderr; the progress goes to the real one.
exec 4>&2
{ "$tierbench" replay --trace "$trace" --dir "$store" "${sizes[@]}" --requests "$requests" --kill-at "$half" \
    --ceiling-seconds none --ack-fd 3 --json 3>&1 >"$folder/before-kill.json" 2>&4 | cat >"$folder/acknowledged" ||
    status=${PIPESTATUS[0]}; } 2>/dev/null
exec 4>&-
if [ "$status" -ne 137 ]; then
    echo "demo: the replay ended with $status instead of SIGKILL" >&2
    exit 1
fi
# A number of the report by its name.
reported() {
    sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$folder/before-kill.json" | head -n 1
}
acknowledged=$(sort -u "$folder/acknowledged" | wc -l)
echo "   Killed behind request $half. It had put $(reported put_blocks) blocks, and the store had called $acknowledged of"
echo "   them durable: $(reported acknowledged_blocks) as was asked for when they were put, $(reported shown_blocks) were on NVMe in the end."
if [ "$acknowledged" -lt "$acknowledged_min" ]; then
    echo "demo: at least $acknowledged_min were expected" >&2
    exit 1
fi
echo
echo "2. A new process opens the store, verifies every one of them, and goes on with the second half."
echo
"$tierbench" replay --trace "$trace" --dir "$store" "${sizes[@]}" --requests "$requests" --resume-at "$half" \
    --verify-acks "$folder/acknowledged"
echo
echo "The store stays in $store. Look into it:"
echo "    build/bin/kvtool stat $store"
echo "    build/bin/kvtool ls $store --limit 10"
echo "    build/bin/kvtool check $store"
