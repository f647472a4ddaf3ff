#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make uninstall: removes the files of a list that `cmake --install` wrote, then the folders of them that are empty
# now, up to the prefix, which stays. Usage: [DESTDIR=FOLDER] uninstall.sh LIST
set -euo pipefail
list=$1
if [ ! -f "$list" ]; then
    echo "uninstall: there is no list of installed files ($list): nothing was installed from here" >&2
    exit 1
fi
mapfile -t files <"$list"

# The prefix is what all of them have in common.
prefix=$(dirname "${files[0]}")
for file in "${files[@]}"; do
    while [[ $file != "$prefix"/* ]]; do
        prefix=$(dirname "$prefix")
        [ "$prefix" != / ] || break 2
    done
done

for file in "${files[@]}"; do
    rm -f "${DESTDIR:-}$file"
done
for file in "${files[@]}"; do
    folder=$(dirname "$file")
    while [[ $folder == "$prefix"/* ]] && { [ ! -d "${DESTDIR:-}$folder" ] || rmdir "${DESTDIR:-}$folder" 2>/dev/null; }; do
        folder=$(dirname "$folder")
    done
done
rm -f "$list"
