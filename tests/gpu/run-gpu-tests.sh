#!/usr/bin/env bash
# make gpu-test: what needs a GPU. Exit code 77, and a reason, where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
for test in gpu_device gpu_mover gpu_store gpu_readiness gpu_sharing gpu_engram gpu_sticky; do
    echo "== $test"
    code=0
    build/tests/$test || code=$?
    [ "$code" -ne 77 ] || exit 77
    [ "$code" -eq 0 ] || exit 1
done
echo "== hf_prefix"
code=0
python3 -B tests/gpu/hf_prefix.py build/tests/hf-prefix || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 77 ] || exit 1
