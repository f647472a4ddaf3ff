#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make coverage`: builds with the preset `coverage`, runs the tests that end by themselves (a process that is killed
# counts nothing), and prints the table of coverage.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
log=build/coverage/coverage.log
mkdir -p build/coverage
cmake --preset coverage >"$log"
cmake --build build/coverage -j "$(nproc)" >>"$log"
find build/coverage -name '*.gcda' -delete
KVT_TEST_SEEDS=${KVT_TEST_SEEDS:-60} ctest --test-dir build/coverage -j "$(nproc)" \
    -L '^(unit|conform|model|fault|sim|stress|golden|damage|fuzz|hostile|tools)$' >>"$log" 2>&1 || {
    tail -n 20 "$log"
    exit 1
}
python3 -B tests/coverage/coverage.py build/coverage
