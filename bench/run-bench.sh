#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make bench: ceiling, sweep, fio, vs, scale, kvtool and a replay, into bench/results/<machine>/, and a page with pictures: DIR/index.html.
#
# Usage: bench/run-bench.sh [DIR]   DIR (default build/bench) lies on the disk to measure; 20 GiB are needed there, and 80 GiB for
# ten million blocks, which are measured where there is so much. Environment: ROUNDS (default 3), MACHINE (the results' folder).
# fio reads the data file of a store that a replay filled: the same file system, the same kind of file, O_DIRECT, io_uring,
# huge-page buffers; in each of three rounds fio and the sweep follow each other.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build/bench}
machine=${MACHINE:-$(uname -n)-$(nproc)-cores}
results=bench/results/$machine
tierbench=build/bin/tierbench
rounds=${ROUNDS:-3}
mkdir -p "$folder" "$results"
rm -f "$folder"/fio.[0-9]* # Of a run that was interrupted.

# What only the measuring needs. tierbench-peers is built where the two libraries are: `make all` ran before they were there.
packages=(librocksdb-dev libsqlite3-dev fio gnuplot-nox)
missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing: ${missing[*]}"
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
cmake --preset release >/dev/null
cmake --build build

# fio_rate FILE PIECE DEPTH - bytes per second of random reads. The file's first 3 GiB: what was never written would be read
# without the disk, and the replay goes around the whole file.
fio_rate() {
    fio --name=read --filename="$1" --readonly --rw=randread --bs="$2" --iodepth="$3" --size=3g --direct=1 --ioengine=io_uring \
        --fixedbufs --registerfiles --iomem=mmap --mem_align=2m --time_based --runtime=2 --norandommap \
        --output-format=json 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["read"]["bw_bytes"])'
}

# fio_best FILE PIECE - the fastest of the usual depths, "rate depth".
fio_best() {
    local depth rate best=0 best_depth=0
    for depth in 4 8 16 32 64; do
        rate=$(fio_rate "$1" "$2" "$depth")
        if [ "$rate" -gt "$best" ]; then
            best=$rate
            best_depth=$depth
        fi
    done
    echo "$best $best_depth"
}

facts="$(git rev-parse --short=12 HEAD 2>/dev/null || echo none),release,$machine,$(uname -r)"

echo "filling a store for fio to read"
store=$folder/fio-store
rm -rf "$store"
$tierbench replay --trace bench/traces/conversation_h1.jsonl.zst --dir "$store" --host 256M --nvme 4G \
    --ceiling-seconds none --json >"$folder/fill.json"

for round in $(seq "$rounds"); do
    echo "round $round of $rounds: fio"
    for piece in 1m 64k; do
        read -r rate depth <<<"$(fio_best "$store/data/data.00" "$piece")"
        echo "$piece $rate $depth" >>"$folder/fio.$round"
    done
    echo "round $round of $rounds: sweep"
    $tierbench sweep --dir "$folder" --csv "$folder/sweep.csv" --plot "$folder/sweep.svg" --json >"$folder/sweep.$round.json"
done
echo "ceiling"
$tierbench ceiling --dir "$folder" --csv "$folder/ceiling.csv" --plot "$folder/ceiling.svg" --json >"$folder/ceiling.json"
rm -rf "$store"
echo "vs"
$tierbench vs --dir "$folder" --rounds "$rounds" --csv "$folder/vs.csv" --plot "$folder/vs.svg" --json >"$folder/vs.json"
echo "scale"
entries=1000,10000,100000,1000000
[ "$(df --output=avail -B1G "$folder" | tail -n 1)" -lt 80 ] || entries=$entries,10000000
$tierbench scale --dir "$folder" --entries "$entries" --csv "$folder/scale.csv" --plot "$folder/scale.svg" --json >"$folder/scale.json"
if [ "$(df --output=avail -B1G "$folder" | tail -n 1)" -ge 60 ]; then
    echo "kvtool"
    $tierbench scale --dir "$folder" --entries 1000000 --block-bytes 32K --keep --json >"$folder/scale-32k.json"
    python3 -B bench/kvtool_times.py build/bin "$folder/scale-store" "$rounds" >"$folder/kvtool.json"
    rm -rf "$folder/scale-store"
fi
echo "replay"
$tierbench replay --trace bench/traces/conversation_h1.jsonl.zst --dir "$store" --host 5% --nvme 80% \
    --csv "$folder/replay.csv" --plot "$folder/replay.svg" --json >"$folder/replay.json"
rm -rf "$store"
if [ -x build/bin/micro_lookup ]; then
    echo "micro_lookup"
    for round in $(seq "$rounds"); do
        rm -rf "$folder/micro-store"
        build/bin/micro_lookup "$folder/micro-store"
    done >"$folder/micro_lookup.txt"
    rm -rf "$folder/micro-store"
    build/bin/micro_memory >"$folder/micro_memory.txt"
    for _ in 1 2 3 4 5; do
        build/bin/micro_policy
    done >"$folder/micro_policy.txt"
    echo "micro_ops"
    for round in $(seq "$rounds"); do
        rm -rf "$folder/micro-store"
        build/bin/micro_ops "$folder/micro-store" 60
    done >"$folder/micro_ops.txt"
    rm -rf "$folder/micro-store"
    echo "micro_codec"
    for round in $(seq "$rounds"); do
        build/bin/micro_codec
    done >"$folder/micro_codec.txt"
    cp "$folder/micro_lookup.txt" "$folder/micro_memory.txt" "$folder/micro_policy.txt" "$folder/micro_ops.txt" "$folder/micro_codec.txt" "$results/"
fi

python3 -B bench/results_csv.py "$folder" "$results" "$rounds" "$facts"
cp "$folder/vs.csv" "$results/"
python3 -B bench/bench_page.py "$folder"
echo "$folder/index.html"
rm -f "$folder"/fio.[0-9]*
