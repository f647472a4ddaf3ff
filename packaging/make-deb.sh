#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make deb: builds the Debian packages from a copy of the tree, and the source package that they come from, into
# build/deb. CUDA is left out of them. Needs debhelper, which is installed when it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for package in debhelper dpkg-dev fakeroot; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -ne 0 ]; then
    echo "installing: ${missing[*]}"
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null
fi

version=$(sed -n '1s/.*(\(.*\)-[^-]*).*/\1/p' packaging/debian/changelog)
name=kvtier-$version
folder=build/deb
rm -rf "$folder"
mkdir -p "$folder/$name"
# In a checkout its files; elsewhere, as in an unpacked release, all there is but what was built.
if [ -e .git ]; then
    git ls-files -co --exclude-standard -z | xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh
else
    find . \( -path ./build -o -name __pycache__ \) -prune -o -type f -print0
fi | tar -c --null -T - | tar -x -C "$folder/$name"
tar -C "$folder" -cJf "$folder/kvtier_$version.orig.tar.xz" "$name"
cp -R packaging/debian "$folder/$name/debian"

(cd "$folder/$name" && dpkg-buildpackage -us -uc)
rm -rf "${folder:?}/$name"
echo "built in $folder:"
ls "$folder"
