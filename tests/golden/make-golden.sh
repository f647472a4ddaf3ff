#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a golden store with the program golden_make and packs it: make-golden.sh golden_make OUT.tar.gz
# Run once for each released format version; the archive is committed and never made anew.
set -euo pipefail
program=$(realpath "$1")
out=$(realpath -m "$2")
[ ! -e "$out" ] || { echo "$out is there: a released format does not change" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" "$work/store"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - store | gzip -9n >"$out"
ls -l "$out"
