#!/usr/bin/env bash
# Installs the Debian packages that kvtier needs to build, test and run its demo: only those missing.
set -euo pipefail
packages=(gcc g++ libc6-dev make cmake ninja-build pkg-config clang clang-format libclang-rt-14-dev python3
    zstd xfsprogs e2fsprogs util-linux
    liblmdb-dev liburing-dev libzstd-dev libcmocka-dev libsodium-dev libxxhash-dev libfuse3-dev)
missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
