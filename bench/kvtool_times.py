#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvtool_times.py - how long kvtool takes on a large store, beside what the disk gives.

Usage: kvtool_times.py BIN-FOLDER STORE ROUNDS. The store is closed (`tierbench scale --keep`
leaves one). Each round drops the page cache (needs root) before each command, and measures the
disk beside the check. Prints JSON: medians, and the rounds.
"""
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import threading
import time

PIECE = 1 << 20
HUGE_PAGE = 2 << 20
DEPTH = 8


def cache_drop():
    """Whether the page cache was dropped."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except OSError:
        return False
    return True


def seconds_of(words, lines_wanted=None):
    """How long a command takes, or how long until it has written so many lines."""
    begin = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        if lines_wanted is None:
            output = child.stdout.read()
            child.wait()
            seconds = time.monotonic() - begin
            if child.returncode != 0:
                sys.exit(f"{' '.join(words)} failed: {child.returncode}")
            return seconds, output
        lines = [child.stdout.readline() for _ in range(lines_wanted)]
        seconds = time.monotonic() - begin
        child.kill()
        if not all(lines):
            sys.exit(f"{' '.join(words)} failed: it wrote fewer lines than {lines_wanted}")
    return seconds, b""


def huge_pieces(count):
    """Buffers of 1 MiB on huge pages: reads into ordinary pages are slower (README.md)."""
    room = mmap.mmap(-1, (count + 2) * PIECE)
    room.madvise(mmap.MADV_HUGEPAGE)
    first = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % HUGE_PAGE
    memory = memoryview(room)[first:first + count * PIECE]
    memory[:] = bytes(len(memory))
    return [memory[i * PIECE:(i + 1) * PIECE] for i in range(count)]


def disk_rate(store, bytes_wanted):
    """Bytes per second of reading so much of the store's own data file in order, DEPTH pieces
    under way: what the check has to read, without kvtier."""
    end = min(bytes_wanted, os.path.getsize(f"{store}/data/data.00")) // PIECE
    if end == 0:
        sys.exit(f"{store}: too few bytes to measure the disk with")
    places = iter(range(end))
    file = os.open(f"{store}/data/data.00", os.O_RDONLY | os.O_DIRECT)
    read_bytes = []

    def read(memory):
        for place in places:
            read_bytes.append(os.preadv(file, [memory], place * PIECE))

    threads = [threading.Thread(target=read, args=(memory,)) for memory in huge_pieces(DEPTH)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    os.close(file)
    if sum(read_bytes) != end * PIECE:
        sys.exit(f"{store}/data/data.00 could not be read to measure the disk")
    return end * PIECE / seconds


def one_round(kvtool, store):
    row = {"is_cold": cache_drop()}
    row["stat_seconds"], output = seconds_of([kvtool, "stat", store, "--json"])
    cache_drop()
    row["ls_first_line_seconds"], _ = seconds_of([kvtool, "ls", store], lines_wanted=1)
    cache_drop()
    row["check_seconds"], output = seconds_of([kvtool, "check", store, "--json"])
    report = json.loads(output)
    row["blocks"] = report["blocks"]
    row["check_bytes_per_s"] = report["read_bytes"] / row["check_seconds"]
    row["disk_bytes_per_s"] = disk_rate(store, report["read_bytes"])
    row["check_share"] = row["check_bytes_per_s"] / row["disk_bytes_per_s"]
    return row


def main():
    bin_folder, store, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rows = [one_round(f"{bin_folder}/kvtool", store) for _ in range(rounds)]
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]
               if name != "is_cold"}
    medians["is_cold"] = all(row["is_cold"] for row in rows)
    print(json.dumps({**medians, "rounds": rows}, indent=1))


if __name__ == "__main__":
    main()
