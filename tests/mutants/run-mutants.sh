#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that the tests can fail: applies each mutant of mutants.txt to a scratch copy of the tree,
# builds it and runs the tests that must catch it. Exit code 1 when one survives. Arguments: names
# of mutants (default: all).
set -uo pipefail
cd "$(dirname "$0")/../.."
tree=$PWD/build/mutants/tree
logs=$PWD/build/mutants/logs
mutate=(python3 -B tests/mutants/mutate.py)
mkdir -p "$tree" "$logs"

# build LOG - the scratch tree.
build() {
    if ! (cd "$tree" && cmake --preset release && cmake --build build -j "$(nproc)") >"$1" 2>&1; then
        grep -E 'error|FAILED' -A4 "$1" | head -n 30
        return 1
    fi
}

"${mutate[@]}" --sync "$tree"
names=$("${mutate[@]}" --list "$@") || exit 1
survived=0
caught=0
for name in $names; do
    log=$logs/$name.log
    tests=$("${mutate[@]}" --apply "$tree" "$name") || { echo "$name: $tests"; exit 1; }
    built=0
    build "$log" && built=1
    if [ $built = 1 ] && ctest --test-dir "$tree/build" -j "$(nproc)" --no-tests=error \
        --output-on-failure -R "$tests" >>"$log" 2>&1; then
        echo "SURVIVED  $name (tests: $tests)"
        survived=$((survived + 1))
    elif [ $built = 1 ]; then
        by=$(sed -n 's/^[[:space:]]*[0-9]* - \([a-z0-9_]*\) (.*/\1/p' "$log" | sort -u | tr '\n' ' ')
        echo "caught    $name by $by"
        caught=$((caught + 1))
    else
        echo "$name: does not build: $log"
        survived=$((survived + 1))
    fi
    "${mutate[@]}" --undo "$tree" "$name"
done
echo "$caught caught, $survived survived"
[ "$survived" -eq 0 ] && [ "$caught" -gt 0 ]
