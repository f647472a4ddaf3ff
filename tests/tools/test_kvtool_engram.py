#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool_engram.py - kvtool engram: tables from rows and from tensors, and files that lie.

Usage: test_kvtool_engram.py SOURCE-FOLDER BIN-FOLDER
"""
import ctypes
import json
import os
import random
import signal
import stat
import struct
import subprocess
import time

import programs
from programs import Programs

LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2  # prctl.h, capability.h.
PRIMES = [101, 103, 107, 109]
ROWS = sum(PRIMES)
VALUES, SCALES = 64, 2


def be_held_to_modes():
    """What is executed behind this may not open what its mode forbids, also as root."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def profile(**more):
    made = {"order_max": 3, "head_count": 2, "class_count": 1000, "pad_class": 2,
            "row_bytes": VALUES + SCALES, "encoding": "e4m3_e8m0", "value_count": VALUES,
            "scale_count": SCALES,
            "layers": [{"number": 3, "multipliers": [1000003, 1000005, 1000007], "primes": PRIMES},
                       {"number": 9, "multipliers": [1000003, 1000005, 1000007], "primes": [7] * 4,
                        "row_count": 30}]}
    made.update(more)
    return made


def safetensors(tensors, metadata=True):
    """{name: (type, shape, bytes)} as a file."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = {"format": "pt", "odd \\u00e4 \" text": "[{,:\\"}
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Engram(Programs):
    def setUp(self):
        self.chance = random.Random(self.id())
        self.store = self.id().rsplit(".", 1)[1][:40]
        self.write("profile.json", json.dumps(profile()).encode())

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return name

    def read(self, name, size=-1):
        with open(self.path(name), "rb") as file:
            return file.read(size)

    def imported(self, name, *more, **keep):
        return self.run_program("kvtool", "engram", "import", "--create", "--nvme", "16M",
                                "--profile", "profile.json", self.store, name, *more, **keep)

    def import_refused(self, saying, *more, expect=1, nvme="16M"):
        self.refused("kvtool", "engram", "import", "--create", "--nvme", nvme, self.store, "t",
                     *more, expect=expect, saying=saying)

    def tables(self):
        return self.json_of("kvtool", "engram", "ls", self.store)["tables"]

    def test_rows_come_back_as_they_were(self):
        rows = self.chance.randbytes(ROWS * (VALUES + SCALES))
        self.write("rows", rows)
        done = self.imported("t", "rows", "--raw", "--layer", 3, "--json")
        table = json.loads(done.stdout)
        self.assertEqual((table["name"], table["state"], table["layer"], table["row_count"]),
                         ("t", "whole", 3, ROWS))
        self.assertEqual(self.tables(), [table])
        self.run_program("kvtool", "engram", "export", self.store, "t", "again")
        self.assertEqual(self.read("again"), rows)
        done = self.run_program("kvtool", "engram", "export", self.store, "t", "-")
        self.assertEqual(done.stdout, rows)
        found = self.json_of("kvtool", "engram", "verify", self.store, "t")
        self.assertEqual((found["damaged_count"], found["is_sum_wrong"]), (0, False))
        self.assertIn(b"whole", self.run_program("kvtool", "engram", "ls", self.store).stdout)
        self.refused("kvtool", "engram", "import", "--profile", "profile.json", self.store, "t",
                     "rows", "--raw", "--layer", 3, expect=1, saying="KVT_EXISTS")
        dropped = self.json_of("kvtool", "engram", "drop", self.store, "t")
        self.assertEqual(dropped, {"name": "t", "outcome": "dropped"})
        self.assertEqual(self.tables(), [])
        self.refused("kvtool", "engram", "drop", self.store, "t", expect=1, saying="KVT_MISS")

    def test_a_profile_may_come_from_a_pipe(self):
        self.write("piped.rows", bytes(ROWS * (VALUES + SCALES)))
        words = ("engram", "import", "--create", "--nvme", "16M", "--raw", "--layer", 3,
                 "--profile", "/dev/stdin", self.store, "t", "piped.rows")
        self.run_program("kvtool", *words, input=self.read("profile.json"))
        self.refused("kvtool", *words, input=bytes(64 << 20), expect=1, saying="File too large")

    def test_tensors_of_several_files_become_rows(self):
        values = self.chance.randbytes(ROWS * VALUES)
        scales = self.chance.randbytes(ROWS * SCALES)
        other = ("F8_E4M3", [2, 2], b"abcd")
        name = "layers.3.engram.embed."
        self.write("one.safetensors", safetensors(
            {"a": other, name + "scale": ("F8_E8M0", [ROWS, SCALES], scales), "b": other}))
        self.write("two.safetensors", safetensors(
            {"c": other, name + "weight": ("F8_E4M3", [ROWS, VALUES], values)}, False))
        self.imported("t", "one.safetensors", "two.safetensors", "--layer", 3)
        done = self.run_program("kvtool", "engram", "export", self.store, "t", "-")
        wanted = b"".join(values[i * VALUES:(i + 1) * VALUES] + scales[i * SCALES:(i + 1) * SCALES]
                          for i in range(ROWS))
        self.assertEqual(done.stdout, wanted)
        self.imported("u", "two.safetensors", "one.safetensors", "--layer", 3, "--unread",
                      "--weight", name + "weight", "--scale", name + "scale")

    def test_what_does_not_fit_the_profile_is_refused(self):
        size = VALUES + SCALES
        layer = ("--profile", "profile.json", "--layer", 3)
        self.write("rows", bytes(ROWS * size - 1))
        self.import_refused("bytes, the rows of the profile", "rows", "--raw", *layer)
        self.import_refused("cannot read", "missing", "--raw", *layer)
        self.import_refused("no such layer", "rows", "--raw", "--profile", "profile.json",
                            "--layer", 4)
        name = "layers.3.engram.embed."
        good = {name + "weight": ("F8_E4M3", [ROWS, VALUES], bytes(ROWS * VALUES)),
                name + "scale": ("F8_E8M0", [ROWS, SCALES], bytes(ROWS * SCALES))}
        for key, kind, shape, saying in (
                ("weight", "BF16", [ROWS, VALUES], "not F8_E4M3"),
                ("scale", "F8_E4M3", [ROWS, SCALES], "not F8_E4M3"),
                ("weight", "F8_E4M3", [VALUES, ROWS], "the profile has"),
                ("weight", "F8_E4M3", [ROWS * VALUES], "the profile has")):
            bad = dict(good)
            bad[name + key] = (kind, shape, good[name + key][2])
            self.write("bad.safetensors", safetensors(bad))
            self.import_refused(saying, "bad.safetensors", *layer)
        self.write("bad.safetensors", safetensors({name + "weight": good[name + "weight"]}))
        self.import_refused("has the tensor", "bad.safetensors", *layer)
        self.refused("kvtool", "engram", "ls", self.store, expect=1, saying="there is no store")

    def test_files_that_lie_are_refused(self):
        name = "layers.3.engram.embed.weight"
        good = safetensors({name: ("F8_E4M3", [ROWS, VALUES], bytes(ROWS * VALUES))})
        length = struct.unpack("<Q", good[:8])[0]
        lies = [b"", b"\0" * 7, b"\xff" * 8, struct.pack("<Q", length * 999) + good[8:],
                good[:8 + length // 2], good[:-1]]
        for text in ("[]", "{", "", "{}x", '{"a"}', '{"a":}', '{"a":{"dtype":1}', "{" * 100000,
                     '{"%s":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[5,1]}}' % name,
                     '{"%s":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1e9]}}' % name,
                     '{"%s":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,-1]}}' % name,
                     '{"%s":{"dtype":"F8_E4M3","shape":[1],'
                     '"data_offsets":[18446744073709551615,18446744073709551615]}}' % name,
                     '{"%s":{"dtype":"F8_E4M3","shape":[1],'
                     '"data_offsets":[0,99999999999999999999]}}' % name):
            lies.append(struct.pack("<Q", len(text)) + text.encode())
        for lie in lies:
            self.write("lie.safetensors", lie)
            self.import_refused("lie.safetensors", "lie.safetensors", "--profile", "profile.json",
                                "--layer", 3)
        for _ in range(60):
            noise = bytearray(good[:8 + length])
            for _ in range(3):
                noise[self.chance.randrange(8, len(noise))] = self.chance.randrange(256)
            self.write("lie.safetensors", bytes(noise))
            self.import_refused("", "lie.safetensors", "--profile", "profile.json", "--layer", 3)
        for wrong in ("{", "[]", '{"order_max": -1}', '{"unknown": 1}', '{"order_max": 4294967296}',
                      json.dumps(profile(layers=profile()["layers"] * 3)),
                      json.dumps(profile(pad_class=1000)), json.dumps(profile(encoding="x"))):
            self.write("wrong.json", wrong.encode())
            self.import_refused("profile", "rows", "--raw", "--profile", "wrong.json", "--layer", 3)

    def test_a_class_map_is_checked(self):
        self.write("rows", bytes(ROWS * (VALUES + SCALES)))
        made = profile(token_count=2000, pad_token=2)
        self.write("profile.json", json.dumps(made).encode())
        layer = ("rows", "--raw", "--layer", 3, "--class-map", "map")
        self.write("map", struct.pack("<2000I", *[i % 1000 for i in range(2000)]))
        self.imported("good", *layer)
        self.write("map", struct.pack("<2000I", *[i % 999 for i in range(2000)]))
        self.import_refused("999 classes", *layer, "--profile", "profile.json")
        self.write("map", b"abc")
        self.import_refused("no class map", *layer, "--profile", "profile.json")

    def test_damage_is_found(self):
        self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
        self.imported("t", "rows", "--raw", "--layer", 3)
        file = self.path(self.store, "engram", "t.engram")
        with open(file, "r+b") as table:
            table.seek(2 * 4096 + 77)
            byte = table.read(1)[0]
            table.seek(2 * 4096 + 77)
            table.write(bytes([byte ^ 4]))
        done = self.run_program("kvtool", "engram", "verify", self.store, "t", "--json", expect=1)
        found = json.loads(done.stdout)
        self.assertEqual((found["damaged_count"], found["first_row"]),
                         (1, 4088 // (VALUES + SCALES)))
        self.refused("kvtool", "engram", "export", self.store, "t", "out", expect=1,
                     saying="KVT_E_CORRUPT")
        self.assertFalse(os.path.exists(self.path("out")))
        report = self.json_of("kvtool", "check", self.store, expect=1)
        self.assertEqual((report["finding_count"], report["damaged"]), (1, 0))
        self.assertEqual(report["findings"][0]["kind"], "table")
        self.assertIn("t: 1 of", report["findings"][0]["text"])

    def test_check_reads_tables(self):
        for name in ("a", "b"):
            self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
            self.imported(name, "rows", "--raw", "--layer", 3)
        report = self.json_of("kvtool", "check", self.store)
        self.assertEqual((report["finding_count"], report["read_bytes"]),
                         (0, 2 * ROWS * (VALUES + SCALES)))
        size = os.path.getsize(self.path(self.store, "engram", "a.engram"))
        with open(self.path(self.store, "engram", "a.engram"), "r+b") as table:
            for at in (0, size - 4096):
                table.seek(at)
                table.write(bytes(4096))
        report = self.json_of("kvtool", "check", self.store, expect=1)
        self.assertEqual((len(report["findings"]), report["read_bytes"]),
                         (1, ROWS * (VALUES + SCALES)))
        self.assertIn("neither head", report["findings"][0]["text"])
        done = self.run_program("kvtool", "check", self.store, expect=1)
        self.assertIn(b"table: a: neither head", done.stdout)

    def test_a_table_that_cannot_be_read_hides_no_other(self):
        self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
        self.imported("t", "rows", "--raw", "--layer", 3)
        with open(self.path(self.store, "engram", "t.engram"), "r+b") as table:
            table.seek(5000)
            table.write(b"damage")
        os.mknod(self.path(self.store, "engram", "a.engram"), stat.S_IFREG)
        # What is no file is no table.
        os.mknod(self.path(self.store, "engram", "b.engram"), stat.S_IFSOCK | 0o600)
        done = self.run_program("kvtool", "engram", "ls", self.store, expect=1,
                                preexec_fn=be_held_to_modes)
        self.assertTrue(done.stdout.startswith(b"t "))
        self.assertIn(b"a.engram", done.stderr)
        report = self.json_of("kvtool", "check", self.store, expect=1,
                              preexec_fn=be_held_to_modes)
        texts = sorted(finding["text"] for finding in report["findings"])
        self.assertEqual(len(texts), 2)
        self.assertIn("a.engram", texts[0])
        self.assertIn("t: 1 of", texts[1])

    def test_a_folder_that_cannot_be_read_is_not_taken_for_none(self):
        self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
        self.imported("t", "rows", "--raw", "--layer", 3)
        os.rename(self.path(self.store, "engram"), self.path("away"))
        self.assertEqual(self.json_of("kvtool", "check", self.store)["findings"], [])
        # A link to itself: to open it is an error, for root as well.
        os.symlink("engram", self.path(self.store, "engram"))
        report = self.json_of("kvtool", "check", self.store, expect=1)
        self.assertEqual([finding["kind"] for finding in report["findings"]], ["table"])
        self.assertIn("cannot be listed", report["findings"][0]["text"])

    def test_check_counts_no_table_that_it_does_not_read(self):
        row_count = 2000000
        layer = {"number": 3, "multipliers": [3, 5, 7], "primes": [7] * 4, "row_count": row_count}
        self.write("large.json", json.dumps(profile(layers=[layer])).encode())
        self.write("rows", b"")
        os.truncate(self.path("rows"), row_count * (VALUES + SCALES))
        importer = subprocess.Popen(
            ["build/bin/kvtool", "engram", "import", "--create", "--nvme", "16M", "--profile",
             "large.json", "--layer", "3", "--raw", self.store, "t", "rows"], cwd=self.scratch,
            stderr=subprocess.PIPE)
        new = os.path.join(self.store, "engram", "t.engram.new")
        deadline = time.monotonic() + 60
        while not (os.path.exists(self.path(new)) and any(self.read(new, 1 << 20)[4096:])):
            self.assertLess(time.monotonic(), deadline)
        importer.send_signal(signal.SIGINT)
        self.assertIn(b"interrupted", importer.communicate(timeout=60)[1])
        self.assertEqual([table["state"] for table in self.tables()], ["importing"])
        self.assertEqual(self.json_of("kvtool", "check", self.store)["read_bytes"], 0)

    def test_a_table_of_a_later_version_is_called_one(self):
        self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
        self.imported("t", "rows", "--raw", "--layer", 3)
        file = self.path(self.store, "engram", "t.engram")
        for at in (0, os.path.getsize(file) - 4096):
            with open(file, "r+b") as table:
                table.seek(at)
                head = bytearray(table.read(4096))
                head[8] = 2
                head[4:8] = struct.pack("<I", crc32c(head[8:]))
                table.seek(at)
                table.write(head)
        self.assertEqual([table["state"] for table in self.tables()], ["foreign"])
        report = self.json_of("kvtool", "check", self.store, expect=1)
        self.assertEqual([(finding["kind"], finding["text"]) for finding in report["findings"]],
                         [("table", "t: it is of a later version, which alone can read and check "
                           "it")])

    def test_wrong_command_lines_are_refused(self):
        for words in (("ls",), ("look", "s"), ("ls", "s", "t"), ("verify", "s"), ("drop", "s"),
                      ("export", "s", "t"), ("import", "s", "t"),
                      # Options of another verb.
                      ("ls", "--layer", 3, "s"), ("verify", "--model", "v41", "s", "t"),
                      ("drop", "--create", "s", "t"), ("export", "--json", "s", "t", "file")):
            self.refused("kvtool", "engram", *words)

    def test_an_import_that_cannot_be_meant_opens_no_file(self):
        layer = ("--profile", "none.json", "--layer", 3)
        for saying, words in (
                ("--raw takes one file", ("none", "none", "--raw", *layer)),
                ("--raw takes no tensors", ("none", "--raw", "--weight", "w", *layer)),
                ("--raw takes no tensors", ("none", "--raw", "--scale", "s", *layer)),
                ("needs --layer", ("none", "--raw", "--profile", "none.json")),
                ("needs --layer", ("none", "--raw", "--profile", "none.json", "--layer", "x")),
                ("needs --model", ("none", "--raw", "--layer", 3)),
                ("needs --model", ("none", *layer, "--model", "demo")),
                ("built in", ("none", "--raw", "--layer", 3, "--model", "x"))):
            self.import_refused(saying, *words, expect=2)
        for nvme in ("zz", "0"):
            self.import_refused("no size of a store", "none", "--raw", *layer, nvme=nvme, expect=2)

    def test_an_export_of_a_store_says_that_tables_are_not_in_it(self):
        self.write("rows", self.chance.randbytes(ROWS * (VALUES + SCALES)))
        self.imported("t", "rows", "--raw", "--layer", 3)
        self.run_program("kvtool", "put", self.store, "a/01", input=b"one")
        done = self.run_program("kvtool", "export", self.store, "all.kva")
        self.assertIn(b"1 tables of N-gram embeddings are not in the archive", done.stderr)
        self.assertEqual(self.run_program("kvtool", "export", self.store, "a.kva", "a").stderr, b"")
        self.run_program("kvtool", "engram", "drop", self.store, "t")
        self.assertEqual(self.run_program("kvtool", "export", self.store, "a.kva").stderr, b"")


if __name__ == "__main__":
    programs.main()
