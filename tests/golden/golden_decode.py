#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""golden_decode.py - tools/decode.py, written from FORMAT.md, and the C code agree about a store.

Usage: golden_decode.py DECODE_REFERENCE DECODE. The first makes a store and prints what C reads;
the second reads the same files. Then those files are damaged: no traceback, and nothing new is
believed.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile


def lines_of(command):
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def decoded(decode, directory):
    return lines_of([sys.executable, "-B", decode, directory, "--json"])


def key_of(batch):
    return batch["segment"], batch["page"]


def batches_of(lines):
    """The batches that count, in order of place."""
    found = [line for line in lines if line["type"] == "batch" and line.pop("counts", True)]
    return sorted(found, key=key_of)


def parts_of(lines):
    return [line for line in lines if line["type"] == "parts"]


def best_of(lines, kind):
    """The copy of STORE or NAMES that counts, without what only decode.py says."""
    copies = [line for line in lines if line["type"] == kind and line.get("valid", True)]
    best = max(copies, key=lambda line: line["sequence"])
    return {name: value for name, value in best.items() if name not in ("file", "valid")}


def compare(reference, lines):
    for kind in ("store", "names"):
        assert best_of(reference, kind) == best_of(lines, kind), kind
    wanted, found = batches_of(reference), batches_of(lines)
    assert [key_of(b) for b in wanted] == [key_of(b) for b in found]
    for a, b in zip(wanted, found):
        assert a == b, (a, b)
    parts = [sorted(parts_of(found), key=key_of) for found in (reference, lines)]
    assert parts[0] == parts[1], parts
    assert sum(len(line["parts"]) for line in parts[0]) > 50
    assert {part["codec"] for line in parts[0] for part in line["parts"]} == {0, 1, 2}
    assert len(wanted) >= 15 and sum(len(b["blocks"]) for b in wanted) > 100
    assert any(b["is_recycle"] for b in wanted) and any(b["kills"] for b in wanted)


def damage(path, rng):
    """Change a few bytes near the start of random pages, where headers and heads are."""
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        for _ in range(200):
            at = rng.randrange(0, max(1, size // 4096)) * 4096 + rng.randrange(0, 300)
            if at >= size:
                continue
            file.seek(at)
            file.write(bytes([rng.randrange(256)]))


def damaged_store_is_survived(decode, store, batches):
    # A recycle header's copy is shown where that is damaged.
    copies = [{**batch, "page": 1} for batch in batches
              if batch["is_recycle"] and not batch["kills"]]
    assert copies
    known = {json.dumps(batch, sort_keys=True) for batch in batches + copies}
    rng = random.Random(7)
    copies_shown = 0
    files = ["STORE.a", "NAMES.a", "NAMES.b", "data/data.00", "second/data.00"]
    for number in range(12):
        chosen = rng.sample(files, 1 + number % len(files))
        for name in chosen:
            path = os.path.join(store, name)
            shutil.copyfile(path, path + ".whole")
            damage(path, rng)
        code, lines = decoded(decode, store)
        assert code == 0 and lines[-1]["type"] == "summary"
        for line in lines:
            if line["type"] == "batch":
                line.pop("counts")
                assert json.dumps(line, sort_keys=True) in known, "a forged batch was believed"
                copies_shown += line in copies
        for name in chosen:
            path = os.path.join(store, name)
            os.replace(path + ".whole", path)
    assert copies_shown > 0


def main():
    reference_program, decode = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        os.mkdir(store)
        code, reference = lines_of([reference_program, store])
        assert code == 0, "decode_reference failed"
        code, lines = decoded(decode, store)
        assert code == 0
        assert lines[-1]["headers_refused"] >= 1, "the damaged header was not noticed"
        compare(reference, [dict(line) for line in lines])
        everything = [line for line in lines if line["type"] == "batch"]
        for line in everything:
            line.pop("counts")
        damaged_store_is_survived(decode, store, everything)
        for name in ("STORE.a", "STORE.b"):
            with open(os.path.join(store, name), "r+b") as file:
                file.write(bytes(8))
        assert decoded(decode, store)[0] == 1
    print("decode.py and the C code agree")


main()
