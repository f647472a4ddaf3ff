#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make policies: what each policy keeps of both traces, into bench/results/policy/: CSV, a page of tables, and curves where gnuplot is.
#
# Usage: bench/run-policies.sh [RESULTS]   A run on another machine gives the same files: a change of them is a change of a policy or of
# the simulator. Three minutes of processor time; what the runs wrote lies in build/policies/.
set -euo pipefail
cd "$(dirname "$0")/.."

results=${1:-bench/results/policy}
raw=build/policies
sim() { build/bin/tierbench sim --trace "bench/traces/$trace.jsonl.zst" "$@" >/dev/null; }

rm -rf "$raw"
mkdir -p "$raw" "$results"
plot=()
if command -v gnuplot >/dev/null; then plot=(--plot "$results"); else echo "no gnuplot: the curves in $results stay as they are"; fi

for trace in conversation_h1 agents_dev; do
    sizes=0.5%,1%,2%,5%,10%,20%
    echo "$trace: one tier"
    sim --policy lru,lfu,lfuda,gdsf,s3fifo,sieve,arc,2q,default,min --capacity $sizes --csv "$raw/$trace.one.csv" "${plot[@]}"
    sim --policy default --capacity $sizes --hint-accuracy 0.8 --csv "$raw/$trace.hints.csv"
    echo "$trace: three tiers"
    tiers=1%,5%,30%
    sim --policy lru,s3fifo,lfuda,arc,default,min --tiers $tiers --csv "$raw/$trace.price-0.csv"
    for price in 4 8; do
        sim --policy default --tiers $tiers --write-price $price --csv "$raw/$trace.price-$price.csv"
    done
    for blocks in 32 128 256 512; do
        sim --policy lru,default --tiers $tiers --write-price 4 --segment-blocks $blocks --csv "$raw/$trace.segments-$blocks.csv"
    done
done
for budget in 5 10 20 30; do
    trace=conversation_h1
    sim --policy default --tiers $tiers --write-budget $budget --csv "$raw/$trace.budget-$budget.csv"
done
python3 -B bench/policy_page.py "$raw" "$results"
echo "$results/policies.md"
