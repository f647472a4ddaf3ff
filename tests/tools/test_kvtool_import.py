#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool_import.py - kvtool import of files: whatever ends it, a key has its old file or the
new one, and no parts are left that nobody needs.

Usage: test_kvtool_import.py SOURCE-FOLDER BIN-FOLDER
"""
import gzip
import json
import os
import shutil
import signal
import subprocess

import programs
from programs import Programs

BLOCK = 256 << 10
ARCHIVES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "archives")
FILES = ('a/"f"', 'a/"g"')


class Imports(Programs):
    def put(self, directory, key, content, *more):
        self.run_program("kvtool", "put", "--create", "--nvme", "16M", directory, key, *more,
                         input=content)

    def get(self, directory, key):
        """The content; None: there is no such block, or it is not whole."""
        done = self.attempt("kvtool", "get", directory, key)
        self.assertIn(done.returncode, (0, 1))
        return done.stdout if done.returncode == 0 else None

    def keys(self, directory):
        listed = self.json_of("kvtool", "ls", directory, "--parts")["blocks"]
        return {block["key"] for block in listed}

    def parts(self, directory):
        return self.parts_of(self.keys(directory))

    def parts_of(self, keys):
        return {key for key in keys if "~part" in key}

    def copy(self, source, target):
        shutil.rmtree(self.path(target), ignore_errors=True)
        shutil.copytree(self.path(source), self.path(target))

    def unpack(self, name):
        """An archive of before manifests came last; its file is a/"large"."""
        with gzip.open(os.path.join(ARCHIVES, name + ".kva.gz")) as file:
            content = file.read()
        with open(self.path(name + ".kva"), "wb") as file:
            file.write(content)
        return name + ".kva"

    def damage(self, directory, content):
        with open(self.path(directory, "data", "data.00"), "r+b") as file:
            file.seek(file.read().rindex(content))
            file.write(b"damage")

    def made(self, name):
        """A store with two files, its copy with other ones, and an archive: (old, new) of each."""
        old = {key: os.urandom(count * BLOCK + 7) for key, count in zip(FILES, (2, 1))}
        new = {key: os.urandom(count * BLOCK + 9) for key, count in zip(FILES, (1, 2))}
        self.put(name + ".new", "a/00", b"new")
        self.put(name + ".old", "a/00", b"old")
        for key in FILES:
            self.put(name + ".old", key, old[key])
            self.put(name + ".new", key, new[key])
        self.put(name + ".new", "a/01", b"one")
        self.put(name + ".new", 'a/"h"', os.urandom(BLOCK + 1))
        self.run_program("kvtool", "export", name + ".new", name + ".kva")
        return old, new

    def attempts(self, name, call, kill):
        """An import of what made() has made for each such call, on a copy."""
        for number in range(1, 100):
            self.copy(name + ".old", name)
            done = self.attempt_failing(call, number, "import", "--replace", name, name + ".kva",
                                        kill=kill)
            if done.returncode == 0:
                break
            yield done
        self.assertEqual(done.returncode, 0)
        self.assertGreater(number, 1)

    def test_an_import_that_fails_leaves_each_file_as_it_was_or_whole_and_new(self):
        old, new = self.made("i1")
        old_parts = self.parts("i1.old")
        replaced = set()
        for call in ("kvt_put_submit", "kvt_get_submit", "kvt_lookup"):
            for done in self.attempts("i1", call, kill=False):
                self.assertEqual(done.returncode, 1)
                found = {key: self.get("i1", key) for key in FILES}
                for key in FILES:
                    self.assertTrue(found[key] in (old[key], new[key]), (key, call, done.stderr))
                replaced.add(sum(found[key] == new[key] for key in FILES))
                if b"could not be verified" in done.stderr:
                    continue
                keys = self.keys("i1")
                self.assertEqual(keys - self.parts_of(keys), {"a/00", *FILES})
                if found == old:
                    self.assertEqual(self.parts_of(keys), old_parts)
        self.assertEqual(replaced, {0, 1, 2})
        # Old parts that could not be deleted go with the next import.
        self.copy("i1.old", "i1")
        done = self.attempt_failing("kvt_delete_submit", 1, "import", "--replace", "i1", "i1.kva")
        self.assertIn(b"could not be deleted", done.stderr)
        self.assertTrue([self.get("i1", key) for key in FILES] == [new[key] for key in FILES])
        self.assertGreater(len(self.parts("i1")), len(self.parts("i1.new")))
        self.run_program("kvtool", "import", "i1", "i1.kva")
        self.assertEqual(self.keys("i1"), self.keys("i1.new"))

    def test_an_import_that_is_killed_leaves_each_file_as_it_was_or_whole_and_new(self):
        old, new = self.made("i2")
        new_keys = self.keys("i2.new")
        for call in ("kvt_put_submit", "kvt_delete_submit"):
            for done in self.attempts("i2", call, kill=True):
                self.assertEqual(done.returncode, -signal.SIGKILL)
                for key in FILES:
                    self.assertTrue(self.get("i2", key) in (old[key], new[key]), (key, call))
                self.run_program("kvtool", "import", "--replace", "i2", "i2.kva")
                self.assertEqual(self.keys("i2"), new_keys)

    def test_a_manifest_before_its_parts_costs_no_file(self):
        archive = self.unpack("manifest-first")
        old = os.urandom(2 * BLOCK + 7)
        new = b"".join(bytes([letter]) * BLOCK for letter in b"ABC")
        self.put("i3.old", 'a/"large"', b"small")
        self.put("i3.old", 'a/"large"', old, "--replace")
        for kill in (True, False):
            for number in range(1, 100):
                self.copy("i3.old", "i3")
                done = self.attempt_failing("kvt_put_submit", number, "import", "--replace", "i3",
                                            archive, kill=kill)
                self.assertTrue(self.get("i3", 'a/"large"') in (old, new), (number, kill))
                if done.returncode == 0:
                    break
            self.assertEqual(number, 6)
            self.assertTrue(self.get("i3", 'a/"large"') == new)

    def test_the_manifests_of_an_archive_come_last(self):
        self.put("i4", "a/01", b"x")
        self.put("i4", 'a/"large"', b"A" * BLOCK + b"B" * BLOCK)
        part = max(self.parts("i4"))
        self.put("i4", part, b"B" * BLOCK, "--replace")  # It lies behind the manifest.
        self.put("i4", "a/00", b"C" * 4000)
        self.run_program("kvtool", "export", "i4", "i4.kva")
        with open(self.path("i4.kva"), "rb") as file:
            content = file.read()
        manifest = content.index(b"kvtool manifest\n")
        for payload in (b"A" * 99, b"B" * 99, b"C" * 99):
            self.assertLess(content.index(payload), manifest)

    def test_no_parts_are_left_that_nobody_needs(self):
        self.put("i5.new", "a/00", b"x")
        self.put("i5.new", FILES[0], os.urandom(3 * BLOCK))
        self.run_program("kvtool", "export", "i5.new", "i5.kva")
        self.put("i5.old", "a/00", b"x")
        old = os.urandom(2 * BLOCK)
        self.put("i5.old", FILES[0], old)
        for more, facts in (((), (0, 5)), (("--replace",), (5, 0))):
            self.copy("i5.old", "i5")
            for _ in range(2):
                done = self.json_of("kvtool", "import", *more, "i5", "i5.kva")
                self.assertEqual((done["stored"], done["existed"], done["left_out"]),
                                 (*facts, 0))
                self.assertEqual(self.parts("i5"), self.parts("i5.new" if more else "i5.old"))
                if more:  # The very same file is not put again.
                    facts = (1, 4)
        # What killed imports have left goes with the next one, also when that keeps the file.
        self.copy("i5.old", "i5")
        killed = self.attempt_failing("kvt_put_submit", 5, "import", "--replace", "i5", "i5.kva",
                                      kill=True)
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        self.assertGreater(len(self.parts("i5")), 2)
        self.run_program("kvtool", "import", "i5", "i5.kva")
        self.assertEqual(self.parts("i5"), self.parts("i5.old"))
        self.assertTrue(self.get("i5", FILES[0]) == old)

    def test_a_block_that_replaces_a_file_leaves_none_of_its_parts(self):
        self.put("i6.new", FILES[0], b"small")
        self.run_program("kvtool", "export", "i6.new", "i6.kva")
        self.put("i6", "a/00", b"x")
        self.put("i6", FILES[0], os.urandom(3 * BLOCK))
        self.put("i6", FILES[1], os.urandom(2 * BLOCK))
        self.run_program("kvtool", "import", "i6", "i6.kva")
        self.assertEqual(len(self.parts("i6")), 5)
        self.run_program("kvtool", "import", "--replace", "i6", "i6.kva")
        self.assertEqual((len(self.parts("i6")), self.get("i6", FILES[0])), (2, b"small"))

    def test_a_block_leaves_none_of_the_parts_of_a_put_that_was_killed(self):
        self.put("i9.new", FILES[0], b"small")
        self.run_program("kvtool", "export", "i9.new", "i9.kva")
        self.put("i9", "a/00", b"x")
        with open(self.path("large"), "wb") as file:
            file.write(bytes(3 * BLOCK))
        for facts in ((1, 0), (0, 1)):  # The key has nothing; it has that block.
            self.attempt_failing("kvt_put_submit", 4, "put", "--replace", "i9", FILES[0], "large",
                                 kill=True)
            self.assertGreater(len(self.parts("i9")), 0)
            done = self.json_of("kvtool", "import", "i9", "i9.kva")
            self.assertEqual((done["stored"], done["existed"]), facts)
            self.assertEqual(self.keys("i9"), {"a/00", FILES[0]})

    def test_a_file_of_which_the_archive_lacks_parts_is_left_out(self):
        archive = self.unpack("part-gone")
        done = self.run_program("kvtool", "import", "--create", "--nvme", "16M", "i7", archive,
                                expect=1)
        self.assertIn(b"1 stored, 0 were there, 3 left out", done.stdout)
        self.assertIn(b"1 files are not whole in part-gone.kva", done.stderr)
        self.assertEqual(self.keys("i7"), {"a/00"})
        old = os.urandom(2 * BLOCK)
        self.put("i7", 'a/"large"', old)
        for more, counts in (((), [0, 1, 3, 1]), (("--replace",), [1, 0, 3, 1])):
            facts = self.json_of("kvtool", "import", *more, "i7", archive, expect=1)
            self.assertEqual([facts[name] for name in ("stored", "existed", "left_out",
                                                       "left_out_files")], counts)
            self.assertTrue(self.get("i7", 'a/"large"') == old)
            self.assertEqual(len(self.parts("i7")), 2)

    def test_a_file_whose_manifest_cannot_be_read_is_replaced(self):
        program = os.path.join(os.path.dirname(self.programs), "tests", "kvtool_failing")
        self.put("u1", 'a/"f"', os.urandom(3 * BLOCK))
        self.run_program("kvtool", "export", "u1", "u.kva")
        for words in (("import", "--json", "u1", "u.kva"), ("put", "--json", "u1", 'a/"f"', "f")):
            self.write("f", "new")
            done = subprocess.run([program, *words], cwd=self.scratch, capture_output=True,
                                  timeout=120, env=dict(os.environ, KVT_UNREAD_KEY="f"))
            self.assertEqual(done.returncode, 0, done.stderr)
            facts = json.loads(done.stdout)
            self.assertEqual((facts.get("existed", 0), facts.get("outcome", "stored")),
                             (0, "stored"))
            self.assertIsNotNone(self.get("u1", 'a/"f"'))
        self.assertEqual(self.keys("u1"), {'a/"f"'})

    def test_an_import_that_fails_keeps_a_file_that_could_not_be_read(self):
        content = os.urandom(3 * BLOCK)
        self.put("u2", 'a/"f"', content)
        self.run_program("kvtool", "export", "u2", "u2.kva")
        failed = 0
        for number in range(1, 9):
            done = self.attempt_failing("kvt_put_submit", number, "import", "u2", "u2.kva",
                                        unread="f")
            failed += done.returncode
            self.assertEqual(self.get("u2", 'a/"f"'), content)
        self.assertIn(failed, range(2, 8))

    def import_of_changed(self, call, first, second, *words):
        """An import of the archive `first`, which is `second` from the first such call on."""
        program = os.path.join(os.path.dirname(self.programs), "tests", "kvtool_failing")
        shutil.copy(self.path(first), self.path("changed.kva"))
        with subprocess.Popen([program, "import", *words, "changed.kva"], cwd=self.scratch,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env=dict(os.environ, KVT_STOP_CALL=f"{call}:1")) as importer:
            self.assertTrue(os.WIFSTOPPED(os.waitpid(importer.pid, os.WUNTRACED)[1]))
            shutil.copy(self.path(second), self.path("changed.kva"))
            importer.send_signal(signal.SIGCONT)
            _, error = importer.communicate(timeout=60)
        self.assertEqual(importer.returncode, 1, error)
        self.assertRegex(error, rb"\A[^\n]+: changed.kva has changed while it was read\n\Z")

    def test_an_archive_that_changes_between_its_two_readings_leaves_nothing(self):
        for name, spaces in (("c1", "ab"), ("c2", "ba")):
            for space in spaces:
                self.put(name, f"{space}/01", space.encode())
            self.put(name, 'a/"f"', os.urandom(2 * BLOCK))
            self.run_program("kvtool", "export", name, name + ".kva")
        self.put("c3", "a/01", b"old")
        self.put("c3", "b/02", b"old")
        # When its file is looked for, the archive has been read once.
        self.import_of_changed("kvt_get_submit", "c1.kva", "c2.kva", "--replace", "c3")
        self.assertEqual(self.keys("c3"), {"a/01", "b/02"})
        self.assertEqual(self.get("c3", "a/01"), b"old")

    def test_an_archive_that_changes_in_its_second_reading_leaves_nothing(self):
        self.put("c4", "a/01", b"one")
        self.run_program("kvtool", "export", "c4", "one.kva")
        for name in ("two", "other"):
            self.put("c4", "a/02", name.encode(), "--replace")
            self.run_program("kvtool", "export", "c4", name + ".kva")
        self.put("c5", "b/00", b"x")
        # When its first block is looked for, that was read again.
        for first, second in (("two", "other"), ("two", "one"), ("one", "two")):
            self.import_of_changed("kvt_lookup", first + ".kva", second + ".kva", "c5")
            self.assertEqual(self.keys("c5"), {"b/00"})

    def test_an_import_mends_a_file_of_which_a_part_is_damaged(self):
        content = b"\x5a" * BLOCK + b"\xa5" * BLOCK
        self.put("i8.old", FILES[0], b"small")
        self.put("i8.old", FILES[0], content, "--replace")
        self.run_program("kvtool", "export", "i8.old", "i8.kva")
        self.put("i8.other", "a/00", b"x")
        self.put("i8.other", FILES[0], os.urandom(BLOCK + 5))
        self.run_program("kvtool", "export", "i8.other", "i8.other.kva")
        self.damage("i8.old", b"\xa5" * 100)
        for archive, source in (("i8.kva", "i8.old"), ("i8.other.kva", "i8.other")):
            for more in ((), ("--replace",)):
                self.copy("i8.old", "i8")
                facts = self.json_of("kvtool", "import", *more, "i8", archive)
                self.assertEqual((facts["blocks"] - facts["stored"], facts["existed"]), (0, 0))
                wanted = content if source == "i8.old" else self.get(source, FILES[0])
                self.assertTrue(self.get("i8", FILES[0]) == wanted)
                self.assertEqual(self.parts("i8"), self.parts(source))


if __name__ == "__main__":
    programs.main()
