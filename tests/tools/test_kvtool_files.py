#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool_files.py - kvtool put and get of files of any length, export and import.

Usage: test_kvtool_files.py SOURCE-FOLDER BIN-FOLDER
"""
import itertools
import json
import os
import pty
import random
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

import programs
from programs import Programs

BLOCK = 256 << 10  # The largest of a store of 64 MiB.
SHIM = os.environ.get("KVT_CRASH_SHIM", "")  # tests/crash/crash_shim.c
SYNC_END, RENAME = 4, 9  # Kinds of its records (crash_log.h).


class Files(Programs):
    def put(self, directory, key, content, *more, nvme="64M", expect=0):
        return self.run_program("kvtool", "put", "--create", "--nvme", nvme, directory, key, *more,
                                input=content, expect=expect)

    def get(self, directory, key):
        return self.run_program("kvtool", "get", directory, key).stdout

    def keys(self, directory, *more):
        return {block["key"] for block in
                self.json_of("kvtool", "ls", directory, *more)["blocks"]}

    def test_content_of_any_length_comes_back(self):
        self.put("f1", "a/00", b"x")
        for length in (0, 1, 95, 96, 97, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 20 * BLOCK + 77):
            with self.subTest(length=length):
                content = os.urandom(length)
                self.put("f1", f'a/"{length}"', content)
                self.assertEqual(self.get("f1", f'a/"{length}"'), content)
                self.assertEqual(self.run_program("kvtool", "verify", "f1", f'a/"{length}"',
                                                  "a/00").stdout.count(b"is whole"), 2)
        self.assertEqual(self.json_of("kvtool", "check", "f1")["finding_count"], 0)

    def test_content_that_looks_like_a_manifest_is_kept_as_it_is(self):
        self.put("f2", 'a/"large"', os.urandom(BLOCK + 1))
        manifest = b"kvtool manifest\n" + bytes(80)
        self.put("f2", 'a/"like"', manifest)
        self.assertEqual(self.get("f2", 'a/"like"'), manifest)

    def test_parts_are_listed_when_asked_for_and_go_with_their_file(self):
        self.put("f3", "a/00", b"x")
        self.put("f3", 'a/"large"', os.urandom(3 * BLOCK))
        self.put("f3", 'a/"other"', os.urandom(2 * BLOCK))
        self.assertEqual(self.keys("f3"), {"a/00", 'a/"large"', 'a/"other"'})
        self.assertEqual(len(self.keys("f3", "--parts")), 8)
        self.put("f3", 'a/"large"', os.urandom(BLOCK * 2), "--replace")
        self.assertEqual(len(self.keys("f3", "--parts")), 7)
        self.put("f3", 'a/"large"', b"small", "--replace")
        self.assertEqual(self.get("f3", 'a/"large"'), b"small")
        self.assertEqual(len(self.keys("f3", "--parts")), 5)
        self.assertEqual(self.json_of("kvtool", "rm", "f3", 'a/"other"')["outcome"], "deleted")
        self.assertEqual(self.keys("f3", "--parts"), {"a/00", 'a/"large"'})

    def test_a_file_without_one_of_its_parts_is_missing(self):
        self.put("f4", "a/00", b"x")
        self.put("f4", 'a/"large"', os.urandom(3 * BLOCK))
        with open(self.path("keep"), "wb") as file:
            file.write(b"as it was")
        part = sorted(self.keys("f4", "--parts") - self.keys("f4"))[1]
        self.run_program("kvtool", "rm", "f4", part)
        self.refused("kvtool", "get", "f4", 'a/"large"', "-o", "keep", expect=1,
                     saying="not whole")
        self.refused("kvtool", "verify", "f4", 'a/"large"', expect=1, saying="not whole")
        with open(self.path("keep"), "rb") as file:
            self.assertEqual(file.read(), b"as it was")
        # So a put brings it, as a file or as one block, and nothing of the old one is left.
        for content in (os.urandom(3 * BLOCK), b"small"):
            self.assertIn(b"is stored", self.put("f4", 'a/"large"', content).stdout)
            self.assertEqual(self.get("f4", 'a/"large"'), content)
            self.assertIn(b"was there", self.put("f4", 'a/"large"', os.urandom(BLOCK * 2)).stdout)
            self.assertEqual(self.get("f4", 'a/"large"'), content)
            parts = sorted(self.keys("f4", "--parts") - self.keys("f4"))
            self.assertEqual(len(parts), 3 if len(content) > BLOCK else 0)
            if parts:
                self.run_program("kvtool", "rm", "f4", parts[2])

    def test_a_file_with_a_damaged_part_is_missing(self):
        self.put("f8", "a/00", b"x")
        self.put("f8", 'a/"large"', b"\x5a" * (3 * BLOCK))
        with open(self.path("f8", "data", "data.00"), "r+b") as file:
            place = file.read().rindex(b"\x5a" * 100)
            file.seek(place)
            file.write(b"damage")
        with open(self.path("keep"), "wb") as file:
            file.write(b"as it was")
        self.refused("kvtool", "get", "f8", 'a/"large"', "-o", "keep", expect=1, saying="damaged")
        with open(self.path("keep"), "rb") as file:
            self.assertEqual(file.read(), b"as it was")
        self.assertEqual([name for name in os.listdir(self.scratch) if "keep." in name], [])
        # So a put brings it, though all of its parts have a copy.
        self.assertEqual(len(self.keys("f8", "--parts")), 5)
        content = os.urandom(2 * BLOCK)
        self.assertIn(b"is stored", self.put("f8", 'a/"large"', content).stdout)
        self.assertEqual(self.get("f8", 'a/"large"'), content)
        self.assertEqual(len(self.keys("f8", "--parts")), 4)

    def test_a_file_that_does_not_fit_leaves_nothing(self):
        self.put("f5", "a/00", b"x", nvme="16M")
        done = self.put("f5", 'a/"large"', bytes(40 << 20), nvme="16M", expect=1)
        self.assertIn(b"no room", done.stderr)
        self.assertLessEqual(self.keys("f5", "--parts"), {"a/00"})

    def test_a_file_that_fills_the_store_is_there_or_was_refused(self):
        # Eight segments of 8 MiB, of which three stay free: 15 parts of 2 MiB and their headers.
        stored = 0
        for kib in range(28000, 32000, 250):
            content = os.urandom(kib << 10)
            with open(self.path("whole"), "wb") as file:
                file.write(content)
            done = self.attempt("kvtool", "put", "--create", "--nvme", "64M", "f9",
                                    'a/"whole"', "whole")
            if done.returncode == 0:
                stored += 1
                self.assertEqual(self.get("f9", 'a/"whole"'), content)
            else:
                self.assertIn(b"no", done.stderr)
                self.assertEqual(self.keys("f9", "--parts"), set())
            shutil.rmtree(self.path("f9"))
        self.assertGreater(stored, 0)

    def test_a_file_that_could_not_be_verified_stays(self):
        content = os.urandom(3 * BLOCK)
        with open(self.path("content"), "wb") as file:
            file.write(content)
        for call, count, wanted in (("kvt_lookup", 8, 3), ("kvt_get_submit", 2, 1)):
            unverified = 0
            for number in range(1, count + 2):
                self.put("f12", "a/00", b"x")
                done = self.attempt_failing(call, number, "put", "f12", 'a/"whole"', "content")
                if b"could not be verified" in done.stderr:
                    self.assertIn(b"KVT_E_NOMEM", done.stderr)
                    unverified += 1
                if done.returncode == 0 or b"could not be verified" in done.stderr:
                    self.assertEqual(self.get("f12", 'a/"whole"'), content)
                else:
                    self.assertEqual(self.keys("f12", "--parts"), {"a/00"})
                shutil.rmtree(self.path("f12"))
            self.assertEqual((done.returncode, unverified), (0, wanted))

    def test_a_replace_that_fails_late_leaves_the_old_file_or_the_new(self):
        old, new = os.urandom(2 * BLOCK), os.urandom(3 * BLOCK)
        with open(self.path("new"), "wb") as file:
            file.write(new)
        replaced = 0
        # Three parts and the manifest; also when the disk cannot read what the key has.
        for number, unread in itertools.product(range(1, 5), (None, "f")):
            self.put("f15", "a/00", b"x")
            self.put("f15", 'a/"f"', old)
            done = self.attempt_failing("kvt_put_submit", number, "put", "--replace", "f15",
                                        'a/"f"', "new", late=True, unread=unread)
            self.assertEqual(done.returncode, 1, done.stderr)
            found = self.get("f15", 'a/"f"')
            self.assertTrue(found in (old, new), number)
            replaced += found == new
            self.run_program("kvtool", "rm", "f15", 'a/"f"')
            self.assertEqual(self.keys("f15", "--parts"), {"a/00"})
            shutil.rmtree(self.path("f15"))
        self.assertEqual(replaced, 2)

    def test_a_put_that_fails_changes_nothing_of_a_file_that_could_not_be_read(self):
        old = os.urandom(3 * BLOCK)
        with open(self.path("new"), "wb") as file:
            file.write(os.urandom(2 * BLOCK))
        self.put("f16", "a/00", b"x")
        self.put("f16", 'a/"f"', old)
        before = self.keys("f16", "--parts")
        # Of its two parts, and of the look whether both are there.
        for call, number, late in (("kvt_put_submit", 1, False), ("kvt_put_submit", 2, False),
                                   ("kvt_put_submit", 2, True), ("kvt_lookup", 3, False)):
            done = self.attempt_failing(call, number, "put", "f16", 'a/"f"', "new", late=late,
                                        unread="f")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(self.keys("f16", "--parts"), before)
            self.assertTrue(self.get("f16", 'a/"f"') == old)

    def test_a_store_that_is_there_keeps_its_capacity(self):
        self.put("f11", "a/00", b"x", nvme="64M")
        self.put("f11", "a/01", b"y", nvme="128M")
        self.assertEqual(os.path.getsize(self.path("f11", "data", "data.00")), 64 << 20)

    def test_a_file_that_the_store_cannot_hold_costs_nothing(self):
        self.put("f10", "a/00", b"x", nvme="64M")
        with open(self.path("huge"), "wb") as file:
            file.truncate(61 << 20)
        self.refused("kvtool", "put", "f10", 'a/"huge"', "huge", expect=1,
                     saying="holds 60.0 MiB at most")
        self.assertEqual(self.keys("f10", "--parts"), {"a/00"})

    def test_an_interrupted_put_leaves_nothing(self):
        self.put("f6", "a/00", b"x", nvme="256M")
        large = os.urandom(11 << 20)
        self.put("f6", 'a/"large"', large)
        before = self.keys("f6", "--parts")
        self.assertGreater(len(before), 4)
        for words in (['a/"new"'], ['a/"large"', "--replace"]):
            putter = subprocess.Popen(["build/bin/kvtool", "put", "f6", *words], cwd=self.scratch,
                                      stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            putter.stdin.write(bytes(80 << 20))  # More than is read before the store is opened.
            putter.stdin.flush()
            time.sleep(0.1)
            putter.send_signal(signal.SIGINT)
            self.assertEqual(putter.wait(60), 1)
            self.assertIn(b"interrupted", putter.stderr.read())
            putter.stdin.close()
            putter.stderr.close()
            self.assertEqual(self.keys("f6", "--parts"), before)
        self.assertEqual(self.get("f6", 'a/"large"'), large)

    def test_progress_of_what_has_no_known_end_promises_none(self):
        self.put("f14", "a/00", b"x", nvme="256M")
        terminal, other_end = pty.openpty()
        with subprocess.Popen(["build/bin/kvtool", "put", "f14", 'a/"piped"', "-"],
                              cwd=self.scratch, stdin=subprocess.PIPE, stderr=other_end) as putter:
            putter.stdin.write(bytes(65 << 20))
            for _ in range(15):
                putter.stdin.write(bytes(1 << 20))
                putter.stdin.flush()
                time.sleep(0.1)
        os.close(other_end)
        shown = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertEqual(putter.returncode, 0)
        self.assertRegex(shown, r"put [0-9.]+ MiB, [0-9.]+ .?B/s")
        self.assertNotIn("left", shown)

    def test_a_signal_that_was_ignored_stays_ignored(self):
        """As nohup has it, and a shell without job control behind &."""
        self.put("f13", "a/00", b"x", nvme="256M")
        content = os.urandom(1 << 20) * 80
        for number in (signal.SIGHUP, signal.SIGINT):
            with subprocess.Popen(
                    ["build/bin/kvtool", "put", "f13", f'a/"{number}"'], cwd=self.scratch,
                    stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                    preexec_fn=lambda number=number: signal.signal(number, signal.SIG_IGN),
            ) as putter:
                putter.stdin.write(content[:70 << 20])
                putter.send_signal(number)
                _, error = putter.communicate(content[70 << 20:], timeout=60)
                self.assertEqual((putter.returncode, error), (0, b""))
            self.assertEqual(self.get("f13", f'a/"{number}"'), content)

    def test_what_a_killed_put_left_goes_with_the_next(self):
        self.put("f7", "a/00", b"x", nvme="256M")
        putter = subprocess.Popen(["build/bin/kvtool", "put", "f7", 'a/"new"'], cwd=self.scratch,
                                  stdin=subprocess.PIPE)
        putter.stdin.write(bytes(100 << 20))
        putter.stdin.flush()
        time.sleep(0.3)
        putter.kill()
        putter.wait()
        putter.stdin.close()
        self.assertEqual(self.keys("f7"), {"a/00"})
        self.run_program("kvtool", "rm", "f7", 'a/"new"', expect=1)
        self.assertEqual(self.keys("f7", "--parts"), {"a/00"})
        self.assertEqual(self.json_of("kvtool", "check", "f7")["finding_count"], 0)
        # Also when that is a plain block, which the key has not, or has. Four parts are there.
        with open(self.path("large"), "wb") as file:
            file.write(bytes(4 << 20))
        for more in ((), ("--replace",)):
            killed = self.attempt_failing("kvt_put_submit", 5, "put", "--replace", "f7", 'a/"new"',
                                          "large", kill=True)
            self.assertEqual(killed.returncode, -signal.SIGKILL)
            self.assertGreater(len(self.keys("f7", "--parts")), len(self.keys("f7")))
            self.put("f7", 'a/"new"', b"small", *more)
            self.assertEqual(self.keys("f7", "--parts"), {"a/00", 'a/"new"'})


class Outputs(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_a_link_stays_and_its_target_is_whole_or_as_it_was")
        for key, content in (("a/01", b"one"), ('a/"large"', b"\x5a" * (3 * BLOCK))):
            case.run_program("kvtool", "put", "--create", "--nvme", "64M", "s", key, input=content)
        with open(case.path("s", "data", "data.00"), "r+b") as file:
            place = file.read().rindex(b"\x5a" * 100)
            file.seek(place)
            file.write(b"damage")

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def test_a_link_stays_and_its_target_is_whole_or_as_it_was(self):
        os.makedirs(self.path("folder"))
        os.makedirs(self.path("links"))
        self.write("folder/target", "as it was")
        os.symlink("../folder/target", self.path("links", "one"))
        os.symlink(self.path("links", "one"), self.path("two"))
        self.refused("kvtool", "get", "s", 'a/"large"', "-o", "two", expect=1, saying="damaged")
        self.refused("kvtool", "export", "none", "two", expect=1)
        self.assertEqual(self.read("folder", "target"), b"as it was")
        self.run_program("kvtool", "get", "s", "a/01", "-o", "two")
        self.assertEqual(self.read("folder", "target"), b"one")
        os.symlink("folder/new", self.path("three"))
        self.run_program("kvtool", "get", "s", "a/01", "-o", "three")
        self.assertEqual(self.read("folder", "new"), b"one")
        for name in ("links/one", "two", "three"):
            self.assertTrue(os.path.islink(self.path(name)))
        self.assertEqual(sorted(os.listdir(self.path("folder"))), ["new", "target"])
        os.symlink("round", self.path("round"))
        self.refused("kvtool", "get", "s", "a/01", "-o", "round", expect=1, saying="cannot write")

    def test_a_file_that_has_no_name_of_its_own_is_written_where_it_is(self):
        with open(self.path("redirected"), "wb") as file:
            for words in (("get", "s", "a/01", "-o", "/dev/stdout"),
                          ("get", "s", "a/01", "-o", f"/dev/fd/{file.fileno()}")):
                done = subprocess.run(["build/bin/kvtool", *words], cwd=self.scratch, stdout=file,
                                      pass_fds=[file.fileno()], timeout=60)
                self.assertEqual((done.returncode, self.read("redirected")), (0, b"one"))
            os.unlink(self.path("redirected"))
            done = subprocess.run(["build/bin/kvtool", *words], cwd=self.scratch, stdout=file,
                                  pass_fds=[file.fileno()], timeout=60)
            self.assertEqual((done.returncode, os.fstat(file.fileno()).st_size), (0, 3))
        done = self.run_program("kvtool", "get", "s", "a/01", "-o", "/dev/stdout")
        self.assertEqual(done.stdout, b"one")

    def test_no_file_of_a_store_is_replaced(self):
        root = self.path("root of f15")
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "f15", "a/01", input=b"one")
        os.makedirs(root)
        os.rename(self.path("f15", "data", "data.00"), os.path.join(root, "data.00"))
        os.symlink(os.path.join(root, "data.00"), self.path("f15", "data", "data.00"))
        os.symlink("f15/STORE.b", self.path("led"))
        for file in ("f15/STORE.a", "led", "f15/LOCK", "f15/meta/data.mdb", "f15/data/data.00",
                     root + "/data.00"):
            with self.subTest(file=file):
                before = self.read(file)
                for words in (("get", "s", "a/01", "-o", file), ("export", "s", file, "a")):
                    self.refused("kvtool", *words, expect=1, saying="it is a file of a store")
                self.assertEqual(self.read(file), before)
        done = subprocess.run(
            [os.path.join(self.programs, "kvtool"), "get", "../../s", "a/01", "-o", "data.mdb"],
            cwd=self.path("f15", "meta"), timeout=60, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.run_program("kvtool", "get", "s", "a/01", "-o", "f15/new")
        self.assertEqual(self.read("f15/new"), b"one")

    def test_a_file_that_is_replaced_keeps_its_mode(self):
        for mode in (0o600, 0o640, 0o755):
            self.write("moded", "old")
            os.chmod(self.path("moded"), mode)
            self.run_program("kvtool", "get", "s", "a/01", "-o", "moded")
            self.assertEqual(os.stat(self.path("moded")).st_mode & 0o777, mode)
        self.run_program("kvtool", "get", "s", "a/01", "-o", "unmoded", umask=0o027)
        self.assertEqual(os.stat(self.path("unmoded")).st_mode & 0o777, 0o640)

    def test_a_name_may_be_as_long_as_names_may_be(self):
        os.makedirs(self.path("long"))
        for name in ("long/" + "n" * 255, "m" * 250):
            for _ in range(2):
                self.run_program("kvtool", "get", "s", "a/01", "-o", name)
                self.assertEqual(self.read(name), b"one")
        self.assertEqual(len(os.listdir(self.path("long"))), 1)
        for name in ("l" * 256, "long/" + "n" * 256):
            self.refused("kvtool", "get", "s", "a/01", "-o", name, expect=1, saying="too long")
        self.refused("kvtool", "get", "s", "a/01", "-o", "x/" * 3000, expect=1, saying="x/x")

    def test_a_file_that_becomes_too_long_leaves_nothing(self):
        os.makedirs(self.path("short"))
        for words in (("get", "s", "a/01", "-o", "short/file"), ("export", "s", "short/file", "a")):
            self.refused("kvtool", *words, expect=1, saying="short/file: File too large",
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)))
        self.assertEqual(os.listdir(self.path("short")), [])

    def test_nobody_has_to_read_the_sentences_of_a_put(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "p", "a/01", input=b"one")
        reader, writer = os.pipe()
        os.close(reader)
        # A sentence is due: there is room for 60 MiB.
        done = subprocess.run(["build/bin/kvtool", "put", "p", 'a/"large"', "-"], cwd=self.scratch,
                              input=os.urandom(1 << 20) * 90, stderr=writer, timeout=120,
                              stdout=subprocess.DEVNULL)
        os.close(writer)
        self.assertEqual((done.returncode, self.json_of("kvtool", "ls", "p")["part_count"]), (1, 0))

    def test_a_pipe_that_nobody_reads_is_a_failure(self):
        for words in (("get", "s", "a/01"), ("export", "s", "-", "a/01")):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run(["build/bin/kvtool", *words], cwd=self.scratch, stdout=writer,
                                  stderr=subprocess.PIPE, timeout=60)
            os.close(writer)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr,
                             b"kvtool: cannot write standard output: Broken pipe\n")


@unittest.skipUnless(SHIM, "KVT_CRASH_SHIM does not name libcrash_shim.so")
class Durable(Programs):
    def syncs_and_renames(self, *words):
        """What the program does to files below "out": (kind, path, new path) in this order."""
        log = self.path("log")
        self.run_program(*words, env=dict(os.environ, LD_PRELOAD=SHIM, KVT_CRASH_LOG=log,
                                          KVT_CRASH_DIR=self.path("out")))
        with open(log, "rb") as file:
            content = file.read()
        os.remove(log)
        record = struct.Struct("<IIQQQQ")
        done = []
        at = 0
        while at < len(content):
            kind, path_length, _, _, length, data_length = record.unpack_from(content, at)
            at += record.size
            path = content[at:at + path_length].decode().split("\0")
            at += path_length + data_length
            if kind == RENAME or (kind == SYNC_END and length == 1):
                done.append((kind, path[0], path[-1]))
        return done

    def test_a_file_is_synced_before_its_name_and_the_name_before_the_end(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "d1", "a/01", input=b"one")
        os.makedirs(self.path("out", "below"))
        for folder in ("", "below/"):
            target = self.path("out", folder + "file")
            for words in (("get", "d1", "a/01", "-o", target), ("export", "d1", target)):
                with self.subTest(words=words):
                    done = self.syncs_and_renames("kvtool", *words)
                    new = done[0][1]
                    self.assertTrue(new.startswith(folder + "file."), done)
                    self.assertEqual(done, [(SYNC_END, new, new), (RENAME, new, folder + "file"),
                                            (SYNC_END, folder[:-1], folder[:-1])])
        # Of a link the target: beside that, and its folder.
        os.symlink("below/file", self.path("out", "link"))
        done = self.syncs_and_renames("kvtool", "get", "d1", "a/01", "-o", self.path("out", "link"))
        new = done[0][1]
        self.assertTrue(new.startswith("below/file."), done)
        self.assertEqual(done, [(SYNC_END, new, new), (RENAME, new, "below/file"),
                                (SYNC_END, "below", "below")])


class Archives(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_an_archive_brings_everything_back")
        for key, content in (("a/01", b"one"), ("a/02@7", b"two" * 3000), ("b/c/03", b"x"),
                             ('b/c/"large"', os.urandom(BLOCK + 5))):
            case.run_program("kvtool", "put", "--create", "--nvme", "64M", "s", key,
                             "--namespace-description", "made for tests", input=content)
        case.run_program("kvtool", "export", "s", "all.kva")
        with open(case.path("all.kva"), "rb") as file:
            cls.archive = file.read()

    def import_bytes(self, directory, content, *more, expect=0):
        return self.run_program("kvtool", "import", "--create", "--nvme", "64M", directory, "-",
                                *more, input=content, expect=expect)

    def contents(self, directory):
        return {key: self.run_program("kvtool", "get", directory, key).stdout for key in
                ("a/01", "a/02@7", "b/c/03", 'b/c/"large"')}

    def test_an_archive_brings_everything_back(self):
        facts = self.json_of("kvtool", "import", "--create", "--nvme", "64M", "a1", "all.kva")
        self.assertEqual((facts["stored"], facts["existed"]), (6, 0))
        self.assertEqual(self.contents("a1"), self.contents("s"))
        self.assertEqual(json.loads(self.import_bytes("a1", self.archive, "--json").stdout)
                         ["existed"], 6)
        # The namespaces have their descriptions.
        self.run_program("kvtool", "put", "a1", "a/04", "--namespace-description",
                         "made for tests", input=b"four")
        self.refused("kvtool", "put", "a1", "a/05", "--namespace-description", "else", expect=1,
                     input=b"five")

    def test_facts_of_blocks_survive(self):
        self.replay("a2", requests=5)
        self.run_program("kvtool", "export", "a2", "a2.kva")
        self.run_program("kvtool", "import", "--create", "--nvme", "64M", "a3", "a2.kva")
        self.run_program("kvtool", "export", "a3", "a3.kva")
        sizes = [os.path.getsize(self.path(name)) for name in ("a2.kva", "a3.kva")]
        self.assertEqual(sizes[0], sizes[1])  # Parents included.

    def test_a_namespace_or_a_key_alone_can_be_exported(self):
        for words, count in ((["a"], 2), (["b/c"], 4), (["a/01"], 1), (['b/c/"large"'], 3),
                             (["a", "b/c/03"], 3), (["a/02@7"], 1)):
            with self.subTest(words=words):
                facts = self.json_of("kvtool", "export", "s", "part.kva", *words)
                self.assertEqual(facts["blocks"], count)
        for words in (["zz"], ["a/77"], ["zz/01"], ["a/01", "a/77"], ["b/c", "a/77"],
                      ["a", "a/" + "ab" * 65]):
            self.refused("kvtool", "export", "s", "no.kva", *words, expect=1)
            self.assertFalse(os.path.exists(self.path("no.kva")))

    def test_a_file_that_is_not_whole_is_left_out_and_counted(self):
        self.run_program("kvtool", "import", "--create", "--nvme", "64M", "a16", "all.kva")
        whole = os.urandom(BLOCK + 7)
        self.run_program("kvtool", "put", "a16", 'b/c/"whole"', input=whole)
        self.run_program("kvtool", "put", "a16", 'b/c/"none"', input=b"")
        keys = self.json_of("kvtool", "ls", "a16", "--parts")["blocks"]
        part = next(block["key"] for block in keys if block["length_bytes"] == 5)
        self.run_program("kvtool", "rm", "a16", part)
        facts = self.json_of("kvtool", "export", "a16", "a16.kva", expect=1)
        self.assertEqual((facts["blocks"], facts["left_out_files"], facts["left_out_damaged"]),
                         (7, 1, 0))
        self.assertIn(b"1 files are not whole",
                      self.run_program("kvtool", "export", "a16", "-", "b/c", expect=1).stderr)
        self.refused("kvtool", "export", "a16", "no.kva", "a/01", 'b/c/"large"', expect=1,
                     saying="not whole")
        self.assertFalse(os.path.exists(self.path("no.kva")))
        self.run_program("kvtool", "import", "--create", "--nvme", "64M", "a17", "a16.kva")
        self.assertEqual(self.run_program("kvtool", "get", "a17", 'b/c/"whole"').stdout, whole)
        self.refused("kvtool", "get", "a17", 'b/c/"large"', expect=1, saying="there is no block")

    def test_a_file_that_is_not_whole_gives_way_to_the_archives(self):
        for missing in (0, 1):
            with self.subTest(missing=missing):
                store = f"a{18 + missing}"
                content = os.urandom(3 * BLOCK)
                described = ("--namespace-description", "made for tests")
                self.run_program("kvtool", "put", "--create", "--nvme", "64M", store, "a/01",
                                 *described, input=b"x")
                self.run_program("kvtool", "put", store, 'b/c/"large"', *described, input=content)
                parts = self.json_of("kvtool", "ls", store, "--parts")["blocks"]
                for part in [block["key"] for block in parts if "~part" in block["key"]][:missing]:
                    self.run_program("kvtool", "rm", store, part)
                self.run_program("kvtool", "import", store, "all.kva")
                whole = self.contents("s")['b/c/"large"'] if missing else content
                self.assertTrue(self.contents(store)['b/c/"large"'] == whole)
                if missing > 0:
                    counts = [self.json_of("kvtool", "ls", name, "--parts")["block_count"]
                              for name in (store, "s")]
                    self.assertEqual(counts[0], counts[1])

    def test_a_file_that_is_not_whole_gives_way_to_a_plain_block_of_the_archives(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "p1", 'a/"key"',
                         input=b"plain")
        self.run_program("kvtool", "export", "p1", "plain.kva")
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "p2", "a/01", input=b"x")
        self.run_program("kvtool", "put", "p2", 'a/"key"', input=os.urandom(3 * BLOCK))
        parts = self.json_of("kvtool", "ls", "p2", "--parts")["blocks"]
        for part in [block["key"] for block in parts if "~part" in block["key"]][:1]:
            self.run_program("kvtool", "rm", "p2", part)
        self.run_program("kvtool", "import", "p2", "plain.kva")
        kept = self.run_program("kvtool", "get", "p2", 'a/"key"').stdout
        self.assertEqual(kept, b"plain")
        self.assertEqual(self.json_of("kvtool", "ls", "p2", "--parts")["block_count"], 2)

    def test_a_pipe_is_as_good_as_a_file(self):
        command = ("build/bin/kvtool export s - | build/bin/kvtool import --create --nvme 64M a4")
        subprocess.run(["bash", "-c", "set -o pipefail; " + command], cwd=self.scratch, check=True,
                       capture_output=True, timeout=60)
        self.assertEqual(self.contents("a4"), self.contents("s"))

    def nothing_came_of(self, content):
        done = self.run_program("kvtool", "import", "a5", "-", input=content, expect=1)
        self.assertRegex(done.stderr.decode(), r"\Akvtool: [^\n]+\n\Z")

    def test_a_damaged_archive_leaves_nothing(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "a5", "z/00", input=b"z")
        size = len(self.archive)
        places = list(range(0, 200, 9)) + [size - 1, size - 16, size - 40, size - 72]
        places += [random.randrange(size) for _ in range(12)]
        for place in places:
            with self.subTest(flipped=place):
                damaged = bytearray(self.archive)
                damaged[place] ^= 1 << place % 8
                self.nothing_came_of(bytes(damaged))
        for cut in [0, 1, 31, 32, 33, 63, 64, 100, size - 1, size - 40, size - 72, size // 2]:
            with self.subTest(cut=cut):
                self.nothing_came_of(self.archive[:cut])
        self.nothing_came_of(self.archive + b"\0")
        self.nothing_came_of(self.archive + self.archive)
        listed = self.json_of("kvtool", "ls", "a5", "--parts")
        self.assertEqual({block["key"] for block in listed["blocks"]}, {"z/00"})
        names = self.json_of("kvtool", "ns", "a5")["namespaces"]
        self.assertEqual([name["name"] for name in names], ["z"])

    def test_blocks_too_large_or_too_many_are_refused_before_the_first(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "1G", "a6", "a/01",
                         input=bytes(1 << 20))
        self.run_program("kvtool", "export", "a6", "large.kva")
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "a7", "z/00", input=b"z")
        self.refused("kvtool", "import", "a7", "large.kva", expect=1, saying="made for blocks of")
        self.assertEqual(self.json_of("kvtool", "ls", "a7")["block_count"], 1)
        # 963 blocks of 64 KiB: less than 64 segments of 1 MiB, of which four stay free.
        self.replay("a12", requests=42, nvme="512M", host="64M")
        self.run_program("kvtool", "export", "a12", "many-bytes.kva")
        self.refused("kvtool", "import", "a7", "many-bytes.kva", expect=1,
                     saying="has room for 60")
        self.assertEqual(self.json_of("kvtool", "ls", "a7")["block_count"], 1)

    def test_what_does_not_fit_a_new_store_makes_none(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "128M", "n1", "a/01",
                         input=bytes(4 << 20))
        for key in range(2, 18):
            self.run_program("kvtool", "put", "n1", f"a/{key:02}", input=os.urandom(4 << 20))
        self.run_program("kvtool", "export", "n1", "n1.kva")
        for nvme, saying in (("16M", "would be made for blocks of 1 to 524288"),
                             ("127M", "would be made for blocks of 1 to 2097152"),
                             ("0", "no size")):
            self.refused("kvtool", "import", "--create", "--nvme", nvme, "n2", "n1.kva",
                         expect=2 if nvme == "0" else 1, saying=saying)
        with open(self.path("wide"), "wb") as file:
            file.truncate(61 << 20)
        self.refused("kvtool", "put", "--create", "--nvme", "64M", "n2", "a/01", "wide", expect=1,
                     saying="holds 40.0 MiB at most")
        self.refused("kvtool", "put", "--create", "--nvme", "32M", "n2", "a/01", expect=1,
                     saying="no room", input=bytes(33 << 20))
        self.assertFalse(os.path.exists(self.path("n2")))
        self.run_program("kvtool", "import", "--create", "--nvme", "128M", "n2", "n1.kva")
        facts = [self.json_of("kvtool", "options", name)["options"] for name in ("n1", "n2")]
        self.assertEqual(facts[0], facts[1])

    def test_an_archive_that_the_store_does_not_keep_leaves_nothing(self):
        # 24 MiB of payload, and 96 MiB of pages.
        self.replay("a13", "--block-bytes", "1K", requests=1200, nvme="512M", host="64M")
        self.run_program("kvtool", "export", "a13", "small.kva")
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "a14", "z/00", input=b"z")
        self.refused("kvtool", "import", "a14", "small.kva", expect=1, saying="has room for 60")
        self.assertEqual(self.json_of("kvtool", "ls", "a14")["block_count"], 1)
        # 955 blocks of 64 KiB: fewer than 60 MiB, but a segment has room for 15 and its headers,
        # and one of the 64 stays free.
        self.replay("a15", requests=40, nvme="512M", host="64M")
        for key in range(20):
            self.run_program("kvtool", "put", "a15", f"b/{key:02}", input=os.urandom(64 << 10))
        self.run_program("kvtool", "export", "a15", "tight.kva")
        self.refused("kvtool", "import", "a14", "tight.kva", expect=1, saying="were evicted")
        left = {block["key"] for block in self.json_of("kvtool", "ls", "a14")["blocks"]}
        self.assertLessEqual(left, {"z/00"})
        self.assertEqual(self.json_of("kvtool", "check", "a14")["finding_count"], 0)

    def test_an_archive_that_could_not_be_verified_stays(self):
        with open(self.path("verified.kva"), "wb") as file:
            file.write(self.archive)
        self.import_bytes("a19", self.archive)
        wanted = self.json_of("kvtool", "ls", "a19", "--parts")["blocks"]
        wanted = {block["key"] for block in wanted}
        unverified = 0
        for number in range(1, 200):
            done = self.attempt_failing("kvt_lookup", number, "import", "--create", "--nvme", "64M",
                                        "a20", "verified.kva")
            listed = self.json_of("kvtool", "ls", "a20", "--parts")["blocks"]
            is_kept = done.returncode == 0 or b"could not be verified" in done.stderr
            self.assertEqual({block["key"] for block in listed}, wanted if is_kept else set())
            shutil.rmtree(self.path("a20"))
            if done.returncode == 0:
                break
            self.assertIn(b"KVT_E_NOMEM", done.stderr)
            unverified += is_kept
        self.assertEqual(done.returncode, 0)
        self.assertGreater(unverified, 0)

    def test_an_interrupted_import_is_all_or_nothing(self):
        self.replay("a8", requests=12)
        facts = self.json_of("kvtool", "export", "a8", "many.kva")
        self.run_program("kvtool", "put", "--create", "--nvme", "128M", "a9", "z/00", input=b"z")
        start = time.monotonic()
        self.run_program("kvtool", "import", "--create", "--nvme", "128M", "a11", "many.kva")
        whole = time.monotonic() - start
        for share in (0.3, 0.45, 0.55, 0.65, 0.75, 0.85):
            importer = subprocess.Popen(["build/bin/kvtool", "import", "a9", "many.kva"],
                                        cwd=self.scratch, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
            time.sleep(whole * share)
            importer.send_signal(signal.SIGINT)
            _, error = importer.communicate(timeout=60)
            count = self.json_of("kvtool", "ls", "a9")["block_count"]
            if importer.returncode == 0:
                self.assertEqual(count, facts["blocks"] + 1)
                break
            self.assertEqual(count, 1, error)
            self.assertIn(importer.returncode, (1, -signal.SIGINT))
        self.assertEqual(self.json_of("kvtool", "check", "a9")["finding_count"], 0)

    def test_long_keys_are_left_out_and_counted(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "a10", "a/" + "ab" * 100,
                         input=b"long")
        self.run_program("kvtool", "put", "a10", "a/01", input=b"short")
        facts = self.json_of("kvtool", "export", "a10", "a10.kva", expect=1)
        self.assertEqual((facts["blocks"], facts["left_out_hashed"]), (1, 1))


if __name__ == "__main__":
    programs.main()
