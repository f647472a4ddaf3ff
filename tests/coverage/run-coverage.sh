#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make coverage`: builds with the preset `coverage`, runs the tests that end by themselves (a process that is killed
# counts nothing), and prints the table of coverage.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
log=build/coverage/coverage.log
# What builds programs against the library, without the flags that this one was built with.
left_out='^(test_packaging|readme_example)$'
status=0
mkdir -p build/coverage
cmake --preset coverage >"$log"
cmake --build build/coverage -j "$(nproc)" >>"$log"
find build/coverage -name '*.gcda' -delete
export KVT_TEST_SEEDS=${KVT_TEST_SEEDS:-60}
run() {
    ctest --test-dir build/coverage -j "$(nproc)" "$@" >>"$log" 2>&1 || status=1
}
# What random runs meet by themselves is seen before other tests provoke it. The rarest states are met once in some thousand
# simulated lives: so many more, until nothing is missing or so many minutes have passed.
marks() { python3 -B tests/coverage/coverage.py --marks build/coverage; }
run -L '^(model|fault|sim|stress)$'
end=$((SECONDS + ${MARK_MINUTES:-15} * 60))
seed=1000000
while ! marks >/dev/null && [ "$SECONDS" -lt "$end" ]; do
    jobs=()
    for _ in $(seq "$(nproc)"); do
        build/coverage/tests/sim_lives --seed $seed --seeds 100 --ops 150 >>"$log" 2>&1 &
        jobs+=($!)
        seed=$((seed + 100))
    done
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
done
marks || status=1
run -L '^(unit|conform|golden|damage|fuzz|hostile|tools)$' -E "$left_out"
[ "$status" -eq 0 ] || sed -n '/tests FAILED/,$p' "$log"
python3 -B tests/coverage/coverage.py build/coverage || status=1
exit "$status"
