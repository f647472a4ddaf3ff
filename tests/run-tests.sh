#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold before a change lands: `make test`.
#
# Builds and runs, stage by stage, and goes on after a failure so that one run shows all of them:
#   release     gcc, warnings are errors as everywhere: every test but those that need a GPU (label gpu)
#               and one that asan has: each allocation fails once
#   asan        clang; address and undefined-behaviour sanitizers: unit, conform, model, fault,
#               golden, fuzz corpora, damage, hostile, but what would take longest
#   tsan        thread sanitizer: unit, conform, stress, model, where there are threads
#   format      clang-format over every tracked .c and .h
# The last line is `N passed, N failed, N skipped`, summed over all stages. Exit code 1 on any failure, and,
# as root on a machine with io_uring, on any skip: there everything can run.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
logs=build/test-logs
mkdir -p "$logs"
passed=0
failed=0
skipped=0
started=$SECONDS

# note STAGE SECONDS TEXT - one line of progress.
note() {
    printf '%-10s %4d s  %s\n' "$1" "$2" "$3"
}

# count STAGE RESULT-FILE SECONDS - add up one ctest run (its JUnit file) and show what failed.
count() {
    local numbers
    numbers=$(python3 -B tests/junit_summary.py "$2")
    local p f s
    read -r p f s <<<"${numbers%%$'\n'*}"
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
    note "$1" "$3" "$p passed, $f failed, $s skipped"
    [ "$numbers" = "${numbers%%$'\n'*}" ] || printf '%s\n' "${numbers#*$'\n'}"
}

# build PRESET FOLDER TARGET - configure and build; on failure show the log and count one failure.
build() {
    local log="$logs/$1-build.log"
    if cmake --preset "$1" >"$log" 2>&1 &&
        cmake --build "$2" -j "$jobs" --target "$3" >>"$log" 2>&1; then
        return 0
    fi
    grep -E 'error|FAILED|warning' -A6 "$log" | head -n 60
    tail -n 5 "$log"
    failed=$((failed + 1))
    return 1
}

# stage PRESET FOLDER TARGET CTEST-ARGUMENTS... - build a target of a preset and run its tests.
stage() {
    local name=$1 folder=$2 target=$3 from=$SECONDS
    shift 3
    if ! build "$name" "$folder" "$target"; then
        note "$name" $((SECONDS - from)) "does not build"
        return
    fi
    local built=$((SECONDS - from))
    local result="$PWD/$logs/$name.xml"
    rm -f "$result"
    # One more than processors: some tests wait for a disk, or for a program that they killed.
    ctest --test-dir "$folder" -j $((jobs + 1)) --output-junit "$result" \
        --test-output-size-failed 200000 --no-tests=error "$@" >"$logs/$name.log" 2>&1
    count "$name" "$result" $((SECONDS - from))
    printf '%17s (build %d s)\n' "" "$built"
}

format() {
    local from=$SECONDS
    if git ls-files -z '*.c' '*.h' | xargs -0 clang-format --dry-run -Werror \
        >"$logs/format.log" 2>&1; then
        passed=$((passed + 1))
        note format $((SECONDS - from)) "1 passed, 0 failed, 0 skipped"
    else
        failed=$((failed + 1))
        note format $((SECONDS - from)) "0 passed, 1 failed, 0 skipped"
        grep -E 'error:' "$logs/format.log" | cut -d: -f1 | sort | uniq -c
        echo "  repair with: clang-format -i FILE"
    fi
}

# Sanitizers see races and leaks better when they stop at the first one, and print no colours. Shadow memory
# is cleared where it is: to map it anew instead, for each large piece of memory, takes a quarter more system time.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:color=never:clear_shadow_mmap_threshold=1073741824
export UBSAN_OPTIONS=print_stacktrace=1:color=never
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:color=never

# How many simulated or modelled lives a sanitizer build runs: they are several times slower.
smoke_seeds=6
# Distinct states of each crash workload.
crash_states=150

format
KVT_CRASH_STATES=$crash_states stage release build all -LE '^gpu$' -E '^fault_alloc$'
KVT_TEST_SEEDS=$smoke_seeds stage asan build/asan all -L '^(unit|conform|model|fault|golden|fuzz|damage|hostile)$' \
    -E '^(fault_io|fault_device|model_replay)$'
KVT_TEST_SEEDS=$((smoke_seeds / 2)) stage tsan build/tsan threads \
    -L '^(unit|conform|stress|model)$' -L '^threads$'

status=0
[ "$failed" -eq 0 ] || status=1
if [ "$skipped" -ne 0 ] && [ "$(id -u)" -eq 0 ] && python3 -B tests/probe_uring.py; then
    echo "a test was skipped although this is root on a machine with io_uring"
    status=1
fi
[ "$passed" -gt 0 ] || status=1
echo "$((SECONDS - started)) s; logs in $logs/"
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
