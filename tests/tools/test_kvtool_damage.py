#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool_damage.py - kvtool on damaged stores: each kind of damage has its name, and what is
whole comes back.

Usage: test_kvtool_damage.py SOURCE-FOLDER BIN-FOLDER
"""
import json
import os
import shutil
import subprocess
import unittest

import programs
from programs import Programs


class Damage(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_a_whole_store_has_no_findings")
        case.replay("whole", requests=8)
        cls.blocks = case.json_of("kvtool", "ls", "whole")["blocks"]
        cls.segment_bytes = case.json_of("kvtool", "stat", "whole")["segment_bytes"]

    def copy(self):
        shutil.rmtree(self.path("d"), ignore_errors=True)
        shutil.copytree(self.path("whole"), self.path("d"))

    def overwrite(self, name, place, content):
        with open(self.path("d", name), "r+b") as file:
            file.seek(place)
            file.write(content)

    def place_of(self, block):
        return (block["segment"] & 0xFFFFFF) * self.segment_bytes + block["page"] * 4096

    def findings(self, expect=1):
        report = self.json_of("kvtool", "check", "d", expect=expect)
        for finding in report["findings"]:
            self.assertGreater(len(finding["text"]), 40)
        return report, [finding["kind"] for finding in report["findings"]]

    def test_a_whole_store_has_no_findings(self):
        self.copy()
        report, kinds = self.findings(expect=0)
        self.assertEqual((report["blocks"], kinds), (len(self.blocks), []))
        scrub = self.json_of("kvtool", "scrub", "d")
        self.assertEqual((scrub["blocks"], scrub["damaged"]), (len(self.blocks), 0))
        one = self.json_of("kvtool", "scrub", "d", "--namespace", "replay")
        self.assertEqual(one["blocks"], len(self.blocks))

    def test_one_damaged_copy_is_named_and_mended_by_an_owner(self):
        for name, kind in (("STORE.a", "store"), ("STORE.b", "store"), ("NAMES.a", "names"),
                           ("NAMES.b", "names")):
            with self.subTest(name=name):
                self.copy()
                self.overwrite(name, 90, b"damage")
                report, kinds = self.findings()
                self.assertEqual((kinds, report["blocks"]), ([kind], len(self.blocks)))
        self.copy()
        os.unlink(self.path("d", "NAMES.a"))
        self.assertEqual(self.findings()[1], ["names"])
        self.copy()
        self.overwrite("STORE.a", 90, b"damage")
        self.run_program("kvtool", "put", "d", "a/01", input=b"x")
        self.run_program("kvtool", "put", "d", "a/02", input=b"x")
        self.assertEqual(self.findings(expect=0)[1], [])

    def test_both_copies_damaged_are_a_finding_and_a_refusal(self):
        for names in (("STORE.a", "STORE.b"), ("NAMES.a", "NAMES.b")):
            self.copy()
            for name in names:
                self.overwrite(name, 90, b"damage")
            report, kinds = self.findings()
            self.assertEqual((kinds, report["status"]), (["store"], "KVT_E_CORRUPT"))
            for words in (["stat"], ["ls"], ["scrub"], ["dump", "records"], ["export", "no"]):
                self.run_program("kvtool", words[0], "d", *words[1:], expect=1)

    def test_a_damaged_index_is_named_and_made_anew(self):
        self.copy()
        size = os.path.getsize(self.path("d", "meta", "data.mdb"))
        self.overwrite("meta/data.mdb", 8192, os.urandom(64 << 10))
        self.assertGreater(size, 128 << 10)
        self.assertEqual(self.findings()[1], ["index"])
        report = self.json_of("kvtool", "check", "d", "--rebuild")
        self.assertEqual((report["blocks"], report["finding_count"]), (len(self.blocks), 0))

    def test_without_an_index_every_whole_block_comes_back(self):
        self.copy()
        shutil.rmtree(self.path("d", "meta"))
        self.assertEqual(self.findings()[1], ["index"])
        self.refused("kvtool", "ls", "d", expect=1)
        lost = self.blocks[3]
        self.overwrite("data/data.00", self.place_of(lost) + 100, b"damage")
        done = self.run_program("kvtool", "check", "--rebuild", "d", expect=1)
        self.assertIn(b"made anew", done.stdout)
        self.assertIn(b"payload: ", done.stdout)
        listed = self.json_of("kvtool", "ls", "d")["blocks"]
        self.assertEqual({each["key"] for each in listed}, {each["key"] for each in self.blocks})
        self.assertEqual(self.json_of("kvtool", "scrub", "d", expect=1)["damaged"], 1)

    def test_a_store_that_goes_on_says_what_it_met(self):
        self.copy()
        shutil.rmtree(self.path("d", "meta"))
        done = self.run_program("kvtool", "put", "d", "a/01", input=b"x")
        self.assertIn(b"event=index_damaged", done.stderr)
        done = self.run_program("kvtool", "put", "d", "a/02", input=b"x")
        self.assertEqual(done.stderr, b"")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a store away")
    def test_root_is_told_whose_store_it_writes_to(self):
        self.copy()
        os.chown(self.path("d"), 65534, 65534)
        done = self.run_program("kvtool", "put", "d", "a/01", input=b"x")
        self.assertIn(b"is of user 65534", done.stderr)
        self.assertEqual(self.run_program("kvtool", "get", "d", "a/01").stderr, b"")

    def test_what_a_rebuild_gave_up_is_a_finding(self):
        self.copy()
        program = os.path.join(os.path.dirname(self.programs), "tests", "kvtool_failing")
        for unread, code, kinds in (("0", 0, []), ("2", 1, ["header"])):
            done = subprocess.run([program, "check", "d", "--rebuild", "--json"], cwd=self.scratch,
                                  capture_output=True, timeout=120,
                                  env=dict(os.environ, KVT_UNREAD_SEGMENTS=unread))
            report = json.loads(done.stdout)
            self.assertEqual((done.returncode, report["finding_count"], report["blocks"]),
                             (code, len(kinds), len(self.blocks)))
            self.assertEqual([finding["kind"] for finding in report["findings"]], kinds)
        self.assertIn("of 2 segments", report["findings"][0]["text"])

    def test_an_overwritten_segment_is_payloads_and_a_header(self):
        self.copy()
        segment = self.blocks[0]["segment"]
        inside = [each for each in self.blocks if each["segment"] == segment]
        self.overwrite("data/data.00", (segment & 0xFFFFFF) * self.segment_bytes,
                       os.urandom(self.segment_bytes))
        report, kinds = self.findings()
        self.assertEqual(kinds.count("payload"), len(inside))
        self.assertEqual(kinds.count("header"), 1)
        self.assertEqual(report["damaged"], len(inside))
        self.assertTrue(all("segment" in each for each in report["findings"]))

    def test_swapped_and_zeroed_payloads_are_found(self):
        self.copy()
        first, second = self.blocks[0], self.blocks[5]
        with open(self.path("d", "data", "data.00"), "r+b") as file:
            contents = []
            for block in (first, second):
                file.seek(self.place_of(block))
                contents.append(file.read(block["stored_bytes"]))
            for block, content in ((first, contents[1]), (second, contents[0])):
                file.seek(self.place_of(block))
                file.write(content)
        self.overwrite("data/data.00", self.place_of(self.blocks[7]), bytes(65536))
        report, kinds = self.findings()
        self.assertEqual(kinds, ["payload"] * 3)
        places = {(each["segment"], each["page"]) for each in report["findings"]}
        self.assertIn((first["segment"], first["page"]), places)
        done = self.run_program("kvtool", "export", "d", "rest.kva", expect=1)
        self.assertIn(b"3 blocks are damaged", done.stderr)

    def test_what_is_not_there_is_not_called_damaged(self):
        self.copy()
        self.overwrite("data/data.00", self.place_of(self.blocks[0]), b"damage")
        key, whole = (self.blocks[number]["key"] for number in (0, 1))
        none = whole.split("/")[0] + '/"none"'
        done = self.run_program("kvtool", "verify", "d", key, none, whole, expect=1)
        self.assertEqual(done.stderr.decode().splitlines(), [
            f"kvtool: the block {key} is there, but its bytes are damaged: it counts as missing",
            f"kvtool: there is no block {none}"])
        self.assertEqual(done.stdout.decode(), f"{whole} is whole\n")

    def test_a_file_with_a_damaged_part_is_in_no_archive(self):
        block = 256 << 10
        for key, content in (("a/00", b"\x33" * 5000), ('a/"large"', b"\x5a" * (3 * block)),
                             ('a/"other"', os.urandom(2 * block))):
            self.run_program("kvtool", "put", "--create", "--nvme", "64M", "parts", key,
                             input=content)
        with open(self.path("parts", "data", "data.00"), "r+b") as file:
            file.seek(file.read().rindex(b"\x5a" * 100))
            file.write(b"damage")
        facts = self.json_of("kvtool", "export", "parts", "parts.kva", expect=1)
        self.assertEqual((facts["blocks"], facts["left_out_damaged"], facts["left_out_files"]),
                         (6, 1, 1))
        # A store that has the file whole keeps it.
        whole = os.urandom(3 * block)
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "kept", "z/00", input=b"z")
        self.run_program("kvtool", "put", "kept", 'a/"large"', input=whole)
        facts = self.json_of("kvtool", "import", "--replace", "kept", "parts.kva")
        self.assertEqual((facts["stored"], facts["left_out"], facts["left_out_files"]), (4, 2, 0))
        self.assertTrue(self.run_program("kvtool", "get", "kept", 'a/"large"').stdout == whole)
        self.assertEqual(self.json_of("kvtool", "ls", "kept")["part_count"], 5)
        # Named, it is nothing.
        self.refused("kvtool", "export", "parts", "no.kva", "a/00", 'a/"large"', expect=1,
                     saying='the file a/"large" is not whole')
        with open(self.path("parts", "data", "data.00"), "r+b") as file:
            file.seek(file.read().rindex(b"\x33" * 100))
            file.write(b"damage")
        self.refused("kvtool", "export", "parts", "no.kva", "a/00", 'a/"other"', expect=1,
                     saying="the block a/00 is damaged")
        self.assertFalse(os.path.exists(self.path("no.kva")))
        done = self.run_program("kvtool", "export", "parts", "-", "a/00", expect=1)
        done = self.run_program("kvtool", "import", "kept", "-", input=done.stdout, expect=1)
        self.assertIn(b"damaged or cut", done.stderr)

    def test_a_short_data_file_is_named(self):
        self.copy()
        os.truncate(self.path("d", "data", "data.00"), self.segment_bytes * 9)
        _, kinds = self.findings()
        self.assertIn("file", kinds)

    def test_without_all_of_its_data_nothing_says_that_a_store_is_whole(self):
        self.copy()
        last = max(each["segment"] & 0xFFFFFF for each in self.blocks)
        os.truncate(self.path("d", "data", "data.00"), self.segment_bytes * last)
        for words in (["scrub"], ["export", "less.kva"]):
            done = self.run_program("kvtool", words[0], "d", *words[1:], expect=1)
            self.assertRegex(done.stderr, rb"\d+ records of d were refused")
        os.unlink(self.path("d", "data", "data.00"))
        for words in (["scrub"], ["export", "none.kva"], ["verify", self.blocks[0]["key"]]):
            done = self.run_program("kvtool", words[0], "d", *words[1:], expect=1)
            self.assertIn(b"data.00 is missing", done.stderr)
        self.assertFalse(os.path.exists(self.path("none.kva")))
        report, kinds = self.findings()
        self.assertEqual(kinds.count("file"), 1)
        self.assertGreater(report["damaged"], 0)

    def test_the_data_of_another_store_is_named(self):
        self.copy()
        self.run_program("kvtool", "export", "d", "other.kva")
        self.run_program("kvtool", "import", "--create", "--nvme", "64M", "other", "other.kva")
        own = self.path("d", "data", "data.00")
        os.rename(own, self.path("own"))
        os.rename(self.path("other", "data", "data.00"), own)
        for words in (["check"], ["check", "--rebuild"], ["scrub"]):
            done = self.run_program("kvtool", *words, "d", expect=1)
            self.assertIn(b"data.00 has blocks of another store, of uuid ", done.stderr)
            self.assertIn(b"mount the right disk", done.stderr)
        os.rename(own, self.path("other", "data", "data.00"))
        os.rename(self.path("own"), own)
        for name in ("d", "other"):
            report = self.json_of("kvtool", "check", name)
            self.assertEqual((report["blocks"], report["finding_count"]), (len(self.blocks), 0))

    def test_every_command_survives_every_damage(self):
        for name, place in (("STORE.a", 0), ("NAMES.a", 0), ("meta/data.mdb", 0),
                            ("meta/data.mdb", 4096), ("data/data.00", 0)):
            self.copy()
            self.overwrite(name, place, b"\xff" * 4096)
            for words in (["ls"], ["ns"], ["stat"], ["check"], ["scrub"], ["options"],
                          ["dump", "segments"], ["dump", "extents"], ["verify", "replay/00"],
                          ["export", "some.kva"]):
                with self.subTest(name=name, words=words):
                    done = self.attempt("kvtool", words[0], "d", *words[1:])
                    self.assertIn(done.returncode, (0, 1), done.stderr)

    def test_dump_of_one_segment_is_that_segment(self):
        self.copy()
        segment = self.blocks[0]["segment"]
        for kind in ("segments", "records", "extents", "batches"):
            done = self.run_program("kvtool", "dump", "d", kind, "--segment", segment, "--json")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertGreater(len(lines), 0)
            self.assertEqual({line["segment"] for line in lines}, {segment})
            if kind == "extents":
                live = sum(line["what"] == "live" for line in lines)
                self.assertEqual(live, sum(each["segment"] == segment for each in self.blocks))
                ends = [(line["page"], line["page"] + line["pages"]) for line in lines]
                self.assertEqual(sorted(ends), ends)
        self.refused("kvtool", "dump", "d", "records", "--segment", "16000000", expect=1)

    def test_caps_and_options_of_a_closed_store(self):
        self.copy()
        caps = self.json_of("kvtool", "caps", "d")
        self.assertIn(caps["library"]["io_engine"], ("uring", "threads"))
        self.assertIn("is_direct", caps["library"]["folder"])
        self.assertIn("lmdb", caps["library"]["versions"])
        self.json_of("kvtool", "caps")
        self.assertIn(b"io_engine", self.run_program("kvtool", "caps").stdout)
        self.refused("kvtool", "caps", "LICENSE", expect=1, saying="LICENSE: Not a directory")
        self.refused("kvtool", "caps", "none", expect=1, saying="none: No such file")
        options = self.json_of("kvtool", "options", "d")
        self.assertFalse(options["is_open"])
        self.assertEqual(options["options"]["segment_bytes"]["value"], self.segment_bytes)
        self.assertTrue(options["options"]["host_capacity_bytes"]["is_default"])


if __name__ == "__main__":
    programs.main()
