#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_examples.py - the programs of examples/ run, and find what an earlier run of either kept.

Usage: test_examples.py SOURCE-FOLDER BIN-FOLDER
"""
import os
import re
import subprocess
import sys

import programs
from programs import Programs

LINE = re.compile(r"(\w+) +(\d+) tokens, +(\d+) of +(\d+) blocks found, +(\d+) rows computed, "
                  r"answer ends with +(\d+), right")


class Examples(Programs):
    def lines_of(self, command):
        done = subprocess.run(command, cwd=self.scratch, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, b"")
        lines = done.stdout.decode().splitlines()
        matches = [LINE.fullmatch(line) for line in lines]
        self.assertTrue(all(matches), lines)
        return [(match[1], *map(int, match.groups()[1:])) for match in matches]

    def c(self, store):
        return self.lines_of(["build/bin/examples/decoder_loop", store])

    def python(self, store):
        if not os.path.exists(self.library):
            self.skipTest("a sanitized build has no shared library")
        return self.lines_of([sys.executable, "-B", "examples/decoder_loop.py", store])

    def check_first(self, lines):
        """A new store: turns find the turns before them, the stranger the system prompt."""
        self.assertEqual([line[0] for line in lines], ["turn"] * 3 + ["stranger"])
        self.assertEqual([line[2] for line in lines], [0, 6, 8, 4])
        for _, tokens, found, _, computed, _ in lines:
            self.assertEqual(computed, tokens - 16 * found)

    def check_again(self, lines, first):
        """Every block that is asked for is there, and the answers are the same."""
        self.assertEqual([line[2] for line in lines], [line[3] for line in lines])
        self.assertEqual([line[5] for line in lines], [line[5] for line in first])

    def test_a_second_run_finds_what_the_first_kept(self):
        first = self.c("c")
        self.check_first(first)
        self.check_again(self.c("c"), first)

    def test_python_does_the_same(self):
        first = self.python("python")
        self.check_first(first)
        self.check_again(self.python("python"), first)

    def test_each_finds_the_blocks_of_the_other(self):
        first = self.c("both1")
        self.check_again(self.python("both1"), first)
        first = self.python("both2")
        self.check_again(self.c("both2"), first)

    def test_each_small_program_does_what_it_says(self):
        for name, says in (("paged_pool", r"6 of 6 pages read back, right"),
                           ("layer_by_layer", r"8 layers of 6 blocks, right"),
                           ("event_loop", r"(32 kept, 0|31 kept, 1) given up"),
                           ("two_processes", r"6 blocks read by another process, right"),
                           ("engram_rows", r"8 steps of 24 tokens, 6 rows each, right"),
                           ("health_check", r"go on")):
            for _ in range(2):  # The second time the blocks are there already.
                with self.subTest(name=name):
                    done = subprocess.run([f"build/bin/examples/{name}", name], cwd=self.scratch,
                                          capture_output=True, timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout)
                    self.assertRegex(done.stdout.decode(), rf"\A{says}\n\Z")
        done = subprocess.run(["build/bin/examples/health_check", "health_check", "read-only"],
                              cwd=self.scratch, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, b"put to memory only\n"))

    def test_a_store_that_cannot_be_opened_is_said(self):
        for command in (["build/bin/examples/decoder_loop", "no/where"],
                        ["build/bin/examples/decoder_loop", "LICENSE"]):
            done = subprocess.run(command, cwd=self.scratch, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr.decode(),
                             r"\Adecoder_loop: cannot open the store: KVT_[A-Z_]+: [^\n]+\n\Z")

        done = subprocess.run(["build/bin/examples/health_check", "no/where"], cwd=self.scratch,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"\Ahealth_check: no cache: KVT_[A-Z_]+: [^\n]+\n\Z")


if __name__ == "__main__":
    programs.main()
