#!/usr/bin/env bash
# make gpu-test: what needs a GPU. Exit code 77, and a reason, where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
for test in gpu_device gpu_mover gpu_store gpu_readiness gpu_hold gpu_sharing gpu_engram gpu_sticky gpu_peers; do
    echo "== $test"
    code=0
    build/tests/$test || code=$?
    [ "$code" -ne 77 ] || [ "$test" = gpu_peers ] || exit 77 # One GPU is enough for the others.
    [ "$code" -ne 77 ] || continue
    [ "$code" -eq 0 ] || exit 1
done
echo "== hf_prefix"
code=0
python3 -B tests/gpu/hf_prefix.py build/tests/hf-prefix || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 77 ] || exit 1
