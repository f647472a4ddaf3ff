#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool.py - kvtool's commands on real stores.

Usage: test_kvtool.py SOURCE-FOLDER BIN-FOLDER
"""
import json
import os
import shutil
import subprocess
import sys
import time

import programs
from programs import Programs


class Kvtool(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(cls.scratch, "content"), "wb") as file:
            file.write(bytes(range(256)) * 40 + b"end")

    def put(self, directory, key, *more, expect=0, **keep):
        return self.run_program("kvtool", "put", "--create", "--nvme", "64M", directory, key, *more,
                                expect=expect, **keep)

    def get(self, directory, key, expect=0):
        return self.run_program("kvtool", "get", directory, key, expect=expect).stdout

    def test_a_block_comes_back_as_it_was_put(self):
        self.put("s1", "a/00ff", "content")
        with open(self.path("content"), "rb") as file:
            content = file.read()
        self.assertEqual(self.get("s1", "a/00ff"), content)
        self.assertEqual(self.get("s1", "a/00FF"), content)
        facts = self.json_of("kvtool", "get", "s1", "a/00ff", "-o", "copy")
        self.assertEqual(facts["length_bytes"], len(content))
        with open(self.path("copy"), "rb") as file:
            self.assertEqual(file.read(), content)

    def test_standard_input_is_a_source(self):
        self.put("s2", 'a/"text"', input=b"one")
        self.put("s2", 'a/"dash"', "-", input=b"two")
        self.assertEqual(self.get("s2", "a/74657874"), b"one")
        self.assertEqual(self.get("s2", 'a/"dash"'), b"two")

    def test_a_block_of_64_mib_fits_a_store_made_for_it(self):
        content = os.urandom(1 << 20) * 64
        self.run_program("kvtool", "put", "--create", "--nvme", "2G", "s3", 'a/"large"',
                         input=content)
        self.assertEqual(self.get("s3", 'a/"large"'), content)
        shutil.rmtree(self.path("s3"))

    def test_what_is_larger_than_a_block_is_kept_in_parts(self):
        self.put("s20", "a/01", input=b"small")
        limit = self.json_of("kvtool", "stat", "s20")["block_bytes_max"]
        self.put("s20", "a/02", input=bytes(limit))
        self.put("s20", "a/03", input=bytes(limit + 1))
        self.assertEqual(self.get("s20", "a/03"), bytes(limit + 1))
        self.assertEqual(self.json_of("kvtool", "ls", "s20")["part_count"], 2)

    def test_a_new_store_takes_blocks_by_its_capacity_and_by_its_first_block(self):
        for nvme, length, largest in (("64M", 1, 256 << 10), ("64M", 300 << 10, 512 << 10),
                                      ("1G", 1, 4 << 20), ("1G", 5 << 20, 8 << 20)):
            with self.subTest(nvme=nvme, length=length):
                self.run_program("kvtool", "put", "--create", "--nvme", nvme, "s21", "a/01",
                                 input=bytes(length))
                facts = self.json_of("kvtool", "stat", "s21")
                self.assertEqual(facts["block_bytes_max"], largest)
                self.assertEqual(facts["segment_bytes"], largest * 4)
                shutil.rmtree(self.path("s21"))

    def test_why_says_where_a_block_is_or_what_became_of_it(self):
        self.put("s30", "a/01", input=b"one")
        self.put("s30", "b/02", input=b"two")
        facts = self.json_of("kvtool", "why", "s30", "a/01")
        self.assertEqual((facts["tiers"], facts["fate"], facts["is_open"]), ("nvme", "none", False))
        self.assertIn(b"a/01 is there: nvme",
                      self.run_program("kvtool", "why", "s30", "a/01").stdout)
        facts = self.json_of("kvtool", "why", "s30", "a/02")
        self.assertEqual((facts["tiers"], facts["fate"], facts["other_namespace"]),
                         ("-", "none", "b"))
        text = self.run_program("kvtool", "why", "s30", "a/02").stdout.decode()
        self.assertIn("a/02 was never stored", text)
        self.assertIn("the namespace b has this key", text)
        self.run_program("kvtool", "rm", "s30", "a/01")
        facts = self.json_of("kvtool", "why", "s30", "a/01")
        self.assertEqual((facts["tiers"], facts["fate"], facts["score"]), ("-", "deleted", None))
        self.assertLess(abs(facts["when_seconds"] - time.time()), 600)
        self.assertRegex(self.run_program("kvtool", "why", "s30", "a/01").stdout.decode(),
                         r"\Aa/01 was deleted, \d+ s ago\n\Z")
        self.refused("kvtool", "why", "s30", "c/01", expect=1, saying="no namespace c")
        self.refused("kvtool", "why", "none", "c/01", expect=1, saying="none")
        self.refused("kvtool", "why", "s30", "c", saying="no key")

    def test_a_block_that_exists_stays_unless_replaced(self):
        self.put("s4", "a/01", input=b"old")
        kept = self.json_of("kvtool", "put", "s4", "a/01", input=b"new")
        self.assertEqual((kept["outcome"], kept["length_bytes"]), ("exists", 3))
        with open(self.path("zeros"), "wb") as file:
            file.truncate(70 << 20)
        kept = self.json_of("kvtool", "put", "s4", "a/01", "zeros")
        self.assertEqual((kept["outcome"], kept["length_bytes"]), ("exists", 3))
        self.assertEqual(self.get("s4", "a/01"), b"old")
        changed = self.json_of("kvtool", "put", "--replace", "s4", "a/01", input=b"new")
        self.assertEqual((changed["outcome"], changed["length_bytes"]), ("stored", 3))
        self.assertEqual(self.get("s4", "a/01"), b"new")
        self.put("s4", 'a/"file"', input=bytes(300 << 10))
        for content in (b"small", bytes(5 << 20)):
            kept = self.json_of("kvtool", "put", "s4", 'a/"file"', input=content)
            self.assertEqual((kept["outcome"], kept["length_bytes"]), ("exists", 300 << 10))

    def test_components_and_namespaces_are_kept_apart(self):
        self.put("s5", "a/01", input=b"zero")
        self.put("s5", "a/01@7", input=b"seven")
        self.put("s5", "b/01", input=b"other")
        self.assertEqual(self.get("s5", "a/01"), b"zero")
        self.assertEqual(self.get("s5", "a/01@7"), b"seven")
        self.assertEqual(self.get("s5", "b/01@0"), b"other")
        listed = self.json_of("kvtool", "ls", "s5", "--namespace", "a")
        self.assertEqual({block["key"] for block in listed["blocks"]}, {"a/01", "a/01@7"})
        self.assertEqual(self.json_of("kvtool", "ls", "s5")["block_count"], 3)

    def test_every_listed_key_can_be_read(self):
        for key in ('a/b/"quote \\" and \\\\"', "a/b/00112233", 'a/b/"plain"', 'n "x"/01', "ö/01"):
            self.put("s6", key, input=key.encode())
        listed = self.json_of("kvtool", "ls", "s6")
        self.assertEqual(listed["block_count"], 5)
        for block in listed["blocks"]:
            self.assertEqual(len(self.get("s6", block["key"])), block["length_bytes"])

    def test_a_long_key_is_listed_by_its_hash_and_read_by_its_text(self):
        key = "a/" + "ab" * 2000
        self.put("s7", key, input=b"long")
        self.assertEqual(self.get("s7", key), b"long")
        block = self.json_of("kvtool", "ls", "s7")["blocks"][0]
        self.assertTrue(block["key_is_hashed"])
        self.assertIn("hash:", block["key"])
        self.refused("kvtool", "get", "s7", block["key"])

    def test_a_removed_block_is_missing_and_stays_so(self):
        self.put("s8", "a/01", input=b"one")
        self.put("s8", "a/02", input=b"two")
        self.assertEqual(self.json_of("kvtool", "rm", "s8", "a/01")["outcome"], "deleted")
        self.refused("kvtool", "get", "s8", "a/01", expect=1, saying="no block")
        self.assertEqual(self.json_of("kvtool", "rm", "s8", "a/01", expect=1)["outcome"], "missing")
        self.assertEqual(self.get("s8", "a/02"), b"two")
        self.assertEqual(self.json_of("kvtool", "stat", "s8")["blocks"], 1)

    def test_a_namespace_keeps_its_description(self):
        self.put("s9", "a/01", "--namespace-description", "v1", input=b"one")
        self.put("s9", "a/02", "--namespace-description", "v1", input=b"two")
        self.put("s9", "a/03", input=b"three")
        self.refused("kvtool", "put", "s9", "a/04", "--namespace-description", "v2", expect=1,
                     input=b"four")
        self.assertEqual(self.json_of("kvtool", "stat", "s9")["blocks"], 3)

    def test_stat_counts_what_is_there(self):
        self.replay("s10")
        facts = self.json_of("kvtool", "stat", "s10")
        self.assertGreater(facts["blocks"], 50)
        self.assertEqual(facts["block_bytes"], facts["blocks"] * 65536)
        self.assertEqual(facts["namespaces"][0]["name"], "replay")
        self.assertEqual(facts["counters"]["entry_count_now"], facts["blocks"])
        self.assertLessEqual(facts["nvme_live_bytes"], facts["nvme_capacity_bytes"])
        self.assertIn(b"namespaces", self.run_program("kvtool", "stat", "s10").stdout)

    def test_check_finds_nothing_in_a_whole_store(self):
        self.replay("s11")
        report = self.json_of("kvtool", "check", "s11")
        self.assertEqual((report["damaged"], report["finding_count"]), (0, 0))
        self.assertEqual(report["blocks"], self.json_of("kvtool", "stat", "s11")["blocks"])
        self.assertEqual(report["read_bytes"], report["blocks"] * 65536)

    def test_check_finds_a_flipped_bit(self):
        self.replay("s12")
        block = self.json_of("kvtool", "ls", "s12", "--limit", "1")["blocks"][0]
        segment_bytes = self.json_of("kvtool", "stat", "s12")["segment_bytes"]
        place = (block["segment"] & 0xFFFFFF) * segment_bytes + block["page"] * 4096 + 1000
        with open(self.path("s12", "data", "data.00"), "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        report = self.json_of("kvtool", "check", "s12", expect=1)
        self.assertEqual(report["damaged"], 1)
        self.assertEqual(len(report["findings"]), report["finding_count"])
        self.refused("kvtool", "get", "s12", block["key"], expect=1, saying="damaged")

    def test_looking_changes_nothing(self):
        self.replay("s13")

        def contents():
            found = {}
            for folder, _, names in os.walk(self.path("s13")):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        found[os.path.join(folder, name)] = hash(file.read())
            return found

        before = contents()
        for words in (["stat", "s13"], ["ls", "s13"], ["check", "s13"], ["dump", "s13", "records"]):
            self.run_program("kvtool", *words)
        self.assertEqual(contents(), before)

    def test_dump_prints_one_object_a_line(self):
        self.replay("s14")
        blocks = self.json_of("kvtool", "stat", "s14")["blocks"]
        for kind in ("segments", "records", "batches"):
            lines = self.run_program("kvtool", "dump", "s14", kind).stdout.splitlines()
            self.assertGreater(len(lines), 0)
            for line in lines:
                self.assertIsInstance(json.loads(line), dict)
            if kind == "records":
                self.assertEqual(len(lines), blocks)

    def test_an_open_store_is_refused(self):
        self.put("s15", "a/01", input=b"one")
        with open(self.path("s15", "LOCK"), "r+b") as lock:
            programs.lock_like_a_store(lock)
            for words in (["put", "s15", "a/03", "LICENSE"], ["rm", "s15", "a/01"]):
                self.refused("kvtool", *words, expect=1, saying="is open: process")

    def test_bad_stores_are_named(self):
        os.makedirs(self.path("stranger"), exist_ok=True)
        shutil.copy(self.path("LICENSE"), self.path("stranger"))
        for command in (["ls"], ["stat"], ["check"], ["get", "a/01"], ["rm", "a/01"],
                        ["put", "a/01", "LICENSE"], ["dump", "records"]):
            for directory in ("nowhere", "stranger", "LICENSE", "", "nowhere/deeper"):
                with self.subTest(command=command, directory=directory):
                    done = self.run_program("kvtool", command[0], directory, *command[1:], expect=1)
                    self.assertRegex(done.stderr.decode(), r"\Akvtool: [^\n]+\n\Z")

    def test_truncated_stores_do_no_harm(self):
        self.replay("s16", requests=5)
        for name in ("STORE.a", "NAMES.a", "meta/data.mdb", "data/data.00"):
            shutil.rmtree(self.path("broken"), ignore_errors=True)
            shutil.copytree(self.path("s16"), self.path("broken"))
            os.truncate(self.path("broken", name), os.path.getsize(self.path("broken", name)) // 3)
            for words in (["stat", "broken"], ["ls", "broken"], ["check", "broken"]):
                command = ["build/bin/kvtool", *words]
                done = subprocess.run(command, cwd=self.scratch, capture_output=True, timeout=120)
                self.assertIn(done.returncode, (0, 1), (name, words, done.stderr))

    def test_bad_keys_are_named(self):
        self.put("s17", "a/01", input=b"one")
        for key in ("", "a", "/", "a/", "/01", "a/0", "a/0g", 'a/"', 'a/"x', 'a/"\\q"', 'a/""',
                    'a/"\\x0"', "a/01@", "a/01@65536", "a/01@-1", 'a/"x"y', "n" * 256 + "/01"):
            with self.subTest(key=key):
                self.refused("kvtool", "get", "s17", key)
        self.refused("kvtool", "get", "s17", "b/01", expect=1, saying="no namespace")

    def test_a_long_key_leaves_room_for_what_is_said_of_it(self):
        self.put("s23", "a/01", input=b"one")
        key = 'a/"' + "\u00e4" * 2000
        done = self.refused("kvtool", "get", "s23", key, saying=r"an escape other than \" \\ \xHH")
        self.assertLess(len(done.stderr), 2200)
        done.stderr.decode("utf-8")
        self.refused("kvtool", "put", "s23", key + '"', "none" * 30 + "\n", expect=1,
                            saying="none?: No such file")
        self.refused("kvtool", "get", "s23", key + '"', expect=1, saying="there is no block a/")

    def test_bad_command_lines_are_named(self):
        for words in ([], ["nothing"], ["ls"], ["ls", "s", "t"], ["ls", "--nothing", "s"],
                      ["ls", "--limit", "x", "s"], ["ls", "--limit", "-1", "s"], ["ls", "--limit"],
                      ["ls", "--json=1", "s"], ["ls", "--json", "--json", "s"], ["stat"],
                      ["get", "s"], ["get", "s", "a/01", "--json"], ["put", "s"],
                      ["export", "s", "-", "--json"],
                      ["put", "s", "a/01", "f", "g"], ["put", "--nvme", "1X", "s", "a/01"],
                      ["put", "--nvme", "99999999999999999999", "s", "a/01"],
                      ["put", "--create", "--nvme", "0", "s", "a/01", "LICENSE"],
                      ["import", "--create", "--nvme", "0", "s", "LICENSE"],
                      ["put", "--nvme", "18446744073709551615K", "s", "a/01"],
                      ["rm", "s"], ["check"], ["dump", "s"], ["dump", "s", "everything"]):
            with self.subTest(words=words):
                self.refused("kvtool", *words)

    def test_bad_contents_are_named(self):
        self.refused("kvtool", "put", "s18", "a/01", "nowhere", expect=1, saying="nowhere")
        self.refused("kvtool", "put", "--create", "--nvme", "64M", "s18", "a/01", expect=1,
                     saying="no room", input=bytes((64 << 20) + 1))
        self.refused("kvtool", "put", "--create", "--nvme", "9E", "s18", "a/01", expect=2)
        self.refused("kvtool", "put", "--create", "--nvme", "8000000T", "s18b", "a/01", expect=1,
                     input=b"x")

    def test_a_full_pipe_end_is_a_failure(self):
        self.replay("s19")
        with open("/dev/full", "wb") as full:
            command = ["build/bin/kvtool", "ls", "s19"]
            done = subprocess.run(command, cwd=self.scratch, stdout=full, stderr=subprocess.PIPE,
                                  timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"could not be written", done.stderr)

    def test_help_that_cannot_be_written_is_a_failure(self):
        for words in (["--help"], ["--version"], ["ls", "--help"]):
            with self.subTest(words=words), open("/dev/full", "wb") as full:
                done = subprocess.run(["build/bin/kvtool", *words], cwd=self.scratch, stdout=full,
                                      stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, 1)
                self.assertIn(b"could not be written", done.stderr)

    def test_decode_says_what_it_could_not_write_and_sends_no_commands(self):
        self.put("s24", "a\x1b[1m\n/01", input=b"one")
        decode = [sys.executable, "-B", os.path.join(self.source, "tools", "decode.py"), "s24"]
        done = subprocess.run(decode, cwd=self.scratch, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"name=a?[1m? description", done.stdout)
        for target, expect, saying in (("/dev/full", 1, b"decode.py: the output could not be "
                                        b"written: No space left on device\n"),
                                       ("closed", 0, b"")):
            reader, writer = os.pipe()
            os.close(reader)
            with open(target if expect else writer, "wb") as output:
                done = subprocess.run(decode, cwd=self.scratch, stdout=output, timeout=60,
                                      stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (expect, saying))
            if expect:
                os.close(writer)

    def test_names_send_no_commands_to_a_terminal(self):
        name = "\u00e4\x1b[1m\u009b31m\u00a0"
        self.put("s27", name + "/01", input=b"one")
        shown = "\u00e4?[1m?31m\u00a0/01".encode()
        self.assertIn(shown, self.run_program("kvtool", "ls", "s27").stdout)
        self.assertIn(b"\\u001b[1m\\u009b31m\xc2\xa0",
                      self.run_program("kvtool", "ls", "s27", "--json").stdout)
        done = self.refused("kvtool", "get", "s27", "\u00a0\u009b1m\xff/01", expect=1)
        self.assertIn("\u00a0??1m\u00ff".encode(), done.stderr)
        done = self.refused("kvtool", "get", "s27", "b\udcff\udcc2/01", expect=1)
        self.assertIn(b"b??", done.stderr)

    def test_decode_waits_for_no_pipe(self):
        self.put("s25", "a/01", input=b"one")
        for name in ("STORE.a", "NAMES.b", "data/data.00"):
            os.rename(self.path("s25", name), self.path("s25", "kept"))
            os.mkfifo(self.path("s25", name))
            with self.subTest(name=name):
                done = subprocess.run(
                    [sys.executable, "-B", os.path.join(self.source, "tools", "decode.py"), "s25"],
                    cwd=self.scratch, capture_output=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertIn(b"it is no regular file", done.stdout)
            os.rename(self.path("s25", "kept"), self.path("s25", name))

    def test_no_file_of_a_store_takes_the_place_of_a_closed_stream(self):
        self.put("s22", "a/01", input=b"one")
        for words, closed, expect in (("rm --json s22 a/02", "<&- >&-", 1),
                                      ("rm --json s22 a/02", ">&- 2>&-", 1),
                                      ("rm s22 b/02", "<&- 2>&-", 1),
                                      ("put s22 a/02 content", "<&- 2>&-", 0),
                                      ("put s22 a/02 content", "<&- >&- 2>&-", 1),
                                      ("put s22 a/03 -", "<&-", 1),
                                      ("stat --json s22", "<&- >&-", 1)):
            with self.subTest(words=words, closed=closed):
                command = f"exec build/bin/kvtool {words} {closed}"
                done = subprocess.run(["sh", "-c", command], cwd=self.scratch, timeout=60)
                self.assertEqual(done.returncode, expect)
                self.assertEqual(os.path.getsize(self.path("s22", "LOCK")), 0)
        self.assertEqual(self.json_of("kvtool", "check", "s22")["finding_count"], 0)


if __name__ == "__main__":
    programs.main()
