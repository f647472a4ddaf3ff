#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""golden_tools.py - kvtool and tools/decode.py read the store of a released format, and agree.

Usage: golden_tools.py ARCHIVE KVTOOL DECODE GOLDEN_MAKE. kvtool check finds nothing; every block
that kvtool lists has the bytes that lie where decode.py, which knows only FORMAT.md, says. At the
end GOLDEN_MAKE makes two stores, which must not differ in one byte.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

PAGE = 4096
PAYLOAD_MAGIC = 0x6B76742D74657374  # tests/support/payload.h
BLOCKS, REPLACED, DELETED = 16, 4, 12  # golden_blocks.h


def output_of(*command):
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def decoded(decode, store):
    lines = [json.loads(line) for line in
             output_of(sys.executable, "-B", decode, store, "--json").splitlines()]
    summary = lines[-1]
    assert summary["type"] == "summary" and summary["headers_refused"] == 0, summary
    # Every put had a batch of its own, and so had each delete.
    assert summary["blocks"] == 2 * BLOCKS + REPLACED, summary
    assert summary["batches"] == summary["blocks"] + BLOCKS - DELETED, summary
    versions = {(line["version_major"], line["version_minor"])
                for line in lines if line["type"] == "store"}
    assert versions == {(1, 0)}, versions
    names = max((line for line in lines if line["type"] == "names"), key=lambda n: n["sequence"])
    epochs = {entry["name"]: entry["epoch"] for entry in names["entries"]}
    assert epochs == {"golden": 1, "cleared": 2}, epochs
    return lines


def payload_at(store, segment_pages, segment, block):
    with open(os.path.join(store, "data", "data.00"), "rb") as file:
        file.seek((segment * segment_pages + block["page"]) * PAGE)
        return file.read(block["length"])


def check_block(kvtool, store, entry, places):
    """The block's payload says whose it is, and is what the raw file has at its place."""
    segment_pages, batch, block = places[entry["segment"], entry["page"]]
    raw = payload_at(store, segment_pages, batch["segment"], block)
    magic, number, version, length = struct.unpack_from("<QQQQ", raw)
    assert (magic, length) == (PAYLOAD_MAGIC, len(raw)), entry
    assert length == entry["length_bytes"] and version == (2 if number < REPLACED else 1), entry
    if not entry["key_is_hashed"]:
        assert block["key"] == entry["key_hex"]
        assert output_of(kvtool, "get", store, entry["key"]) == raw, entry
    return number


def main():
    archive, kvtool, decode, golden_make = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["tar", "-C", scratch, "--no-same-owner", "-xzf", archive], check=True)
        store = os.path.join(scratch, "store")
        lines = decoded(decode, store)
        segment_pages = lines[0]["segment_pages"]
        places = {(batch["segment"], block["page"]): (segment_pages, batch, block)
                  for batch in lines if batch["type"] == "batch" for block in batch["blocks"]}
        report = json.loads(output_of(kvtool, "check", store, "--json"))
        assert (report["blocks"], report["finding_count"], report["damaged"]) == (DELETED, 0, 0)
        listed = json.loads(output_of(kvtool, "ls", store, "--json"))["blocks"]
        assert {entry["namespace"] for entry in listed} == {"golden"}
        numbers = sorted(check_block(kvtool, store, entry, places) for entry in listed)
        assert numbers == list(range(DELETED)), numbers
        assert decoded(decode, store) == lines, "looking has changed the store"
        for name in ("one", "two"):
            output_of(golden_make, os.path.join(scratch, name))
        output_of("diff", "-r", os.path.join(scratch, "one"), os.path.join(scratch, "two"))
    print(f"{len(listed)} blocks agree")


main()
