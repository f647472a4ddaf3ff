#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_kvtool_open.py - kvtool on a store that another process has open.

Usage: test_kvtool_open.py SOURCE-FOLDER BIN-FOLDER
"""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import programs
from programs import Programs

# What a terminal does that kvtool has given back: lines, shown as they are typed.
LINES = termios.ECHO | termios.ICANON


class Owner:
    """A process that has a store open and is busy with it."""

    def __init__(self, test, directory):
        self.live = test.path(directory, "live")
        self.process = subprocess.Popen(
            ["build/bin/tierbench", "replay", "--trace", programs.TRACE, "--dir", directory,
             "--requests", "9000", "--host", "16M", "--nvme", "64M", "--ceiling-seconds",
             "none", "--json"],
            cwd=test.scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not (os.path.exists(self.live) and os.path.getsize(self.live) > 0):
            test.assertIsNone(self.process.poll(), "the owner has ended")
            test.assertLess(time.monotonic(), end, "the owner shows nothing")
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()


class OpenStores(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("test_stat_tells_who_has_it_and_what_it_does")
        cls.owner = Owner(case, "s")

    @classmethod
    def tearDownClass(cls):
        cls.owner.kill()
        super().tearDownClass()

    def test_stat_tells_who_has_it_and_what_it_does(self):
        facts = self.json_of("kvtool", "stat", "s")
        self.assertEqual(facts["owner"]["pid"], self.owner.process.pid)
        self.assertEqual(facts["owner"]["program"], "tierbench")
        self.assertEqual(facts["counters"]["host_capacity_bytes_now"], 16 << 20)
        self.assertEqual(facts["nvme_capacity_bytes"], 64 << 20)
        text = self.run_program("kvtool", "stat", "s").stdout.decode()
        self.assertIn(f"process {self.owner.process.pid} (tierbench)", text)

    def test_what_it_shows_goes_on(self):
        first = self.json_of("kvtool", "stat", "s")["counters"]["lookup_count"]
        end = time.monotonic() + 30
        while self.json_of("kvtool", "stat", "s")["counters"]["lookup_count"] <= first:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_leases_of_an_owner_are_counted(self):
        facts = self.json_of("kvtool", "leases", "s")
        self.assertEqual(facts["pid"], self.owner.process.pid)
        self.assertEqual(len(facts["leases"]), min(facts["seen"], 256))
        for lease in facts["leases"]:
            self.assertEqual(lease["namespace"], "replay")
            self.assertGreater(lease["blocks"], 0)
        self.assertIn(b"leases", self.run_program("kvtool", "leases", "s").stdout)

    def test_options_are_those_in_force(self):
        facts = self.json_of("kvtool", "options", "s")
        self.assertTrue(facts["is_open"])
        self.assertEqual(facts["options"]["host_capacity_bytes"],
                         {"value": 16 << 20, "is_default": False, "is_made": False})
        self.assertTrue(facts["options"]["lease_count_max"]["is_default"])

    def test_why_tells_what_the_owner_wrote(self):
        facts = self.json_of("kvtool", "why", "s", "replay/0102")
        self.assertEqual((facts["is_open"], facts["fate"]), (True, "none"))
        self.assertIn(b"a process has the store open",
                      self.run_program("kvtool", "why", "s", "replay/0102").stdout)
        self.refused("kvtool", "why", "s", "absent/0102", expect=1, saying="absent")

    def test_top_prints_a_line_or_an_object_each_time(self):
        done = self.run_program("kvtool", "top", "s", "--interval", "0.15", "--count", "3")
        self.assertEqual(len(done.stdout.splitlines()), 4)
        lookups = 0
        while lookups == 0:  # The owner shows itself now and then: later on a busy machine.
            done = self.run_program("kvtool", "top", "s", "--interval", "0.2", "--count", "3",
                                    "--json")
            objects = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(len(objects), 3)
            self.assertEqual(objects[0]["interval_ns"], 0)
            for each in objects:
                if each["rates"]["lookup_count"] > 0:
                    self.assertGreater(each["interval_ns"], 0)
            lookups = sum(each["rates"]["lookup_count"] for each in objects)

    def test_every_other_command_names_the_owner(self):
        for words in (["ls"], ["ns"], ["get", "a/01"], ["put", "a/01", "LICENSE"], ["rm", "a/01"],
                      ["verify", "a/01"], ["check"], ["check", "--rebuild"], ["scrub"],
                      ["dump", "records"], ["export", "x.kva"]):
            with self.subTest(words=words):
                self.refused("kvtool", words[0], "s", *words[1:], expect=1,
                             saying=f"s is open: process {self.owner.process.pid} (tierbench)")
        self.assertFalse(os.path.exists(self.path("x.kva")))

    def screen(self, act, store="s"):
        """Runs top on a terminal and does `act` to it; what was shown, how it ended, and whether
        the terminal is as it was."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.scratch)
            os.environ["TERM"] = "xterm"
            os.execv("build/bin/kvtool", ["kvtool", "top", store, "--interval", "0.2"])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        shown = b""
        end = time.monotonic() + 30
        acted = False
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 0.05)[0]:
                continue
            try:
                part = os.read(terminal, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
            if not acted and shown.count(b"\033[H") >= 2:
                self.assertEqual(termios.tcgetattr(terminal)[3] & termios.ECHO, 0)
                act(pid, terminal)
                acted = True
            if acted and shown.endswith(b"\033[?1049l"):
                self.assertEqual(termios.tcgetattr(terminal)[3] & LINES, LINES)
        status = os.waitpid(pid, 0)[1]
        os.close(terminal)
        return shown, status

    def test_top_gives_the_terminal_back_however_it_ends(self):
        for act, ending in ((lambda pid, terminal: os.write(terminal, b"q"), 0),
                            (lambda pid, terminal: os.kill(pid, signal.SIGTERM), signal.SIGTERM),
                            (lambda pid, terminal: os.write(terminal, b"\x03"), signal.SIGINT),
                            (lambda pid, terminal: os.kill(pid, signal.SIGSEGV), signal.SIGSEGV)):
            shown, status = self.screen(act)
            self.assertIn(b"tierbench", shown)
            self.assertIn(b"HOST", shown)
            self.assertTrue(shown.endswith(b"\033[?25h\033[?1049l"), shown[-40:])
            self.assertEqual(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, ending)

    def await_lookups(self, owner, directory):
        """Until the owner, of those that the store had, shows that it has measured something. By a
        command that does not open the store, which the owner may be about to do."""
        end = time.monotonic() + 60
        while True:
            done = subprocess.run(["build/bin/kvtool", "top", directory, "--count", "1", "--json"],
                                  cwd=self.scratch, capture_output=True, timeout=60, check=False)
            shown = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
            if (shown.get("pid") == owner.process.pid and
                    shown["counters"]["lookup_count"] > 0):
                return
            self.assertIsNone(owner.process.poll(), "the owner has ended")
            self.assertLess(time.monotonic(), end, "the owner shows no lookups")
            time.sleep(0.02)

    def test_top_takes_no_difference_between_two_owners(self):
        owners = [Owner(self, "s6")]
        pictures = []

        def whose(owner):
            return f"process {owner.process.pid} ".encode()

        def replace(pid, terminal):
            os.kill(pid, signal.SIGSTOP)
            owners[0].kill()
            owners.append(Owner(self, "s6"))
            self.await_lookups(owners[1], "s6")
            os.kill(pid, signal.SIGCONT)
            shown = b""
            while b"q quits" not in (picture := shown.partition(whose(owners[1]))[2]):
                shown += os.read(terminal, 65536)
            pictures.append(picture.decode())
            os.write(terminal, b"q")

        try:
            self.screen(replace, "s6")
        finally:
            owners[-1].kill()
        latencies = pictures[0].partition("mean now")[2].partition("q quits")[0].splitlines()[1:]
        means = [line.split()[1] for line in latencies if len(line.split()) > 2]
        self.assertGreater(len(means), 0)
        self.assertEqual(set(means), {"-"})

    def test_top_fits_any_window(self):
        def shrink(pid, terminal):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
            os.kill(pid, signal.SIGWINCH)
            time.sleep(0.3)
            os.write(terminal, b"q")

        shown, _ = self.screen(shrink)
        last = shown.split(b"\033[H")[-1].split(b"\033[J")[0].replace(b"\033[K", b"")
        lines = last.replace(b"\r", b"").split(b"\n")
        self.assertEqual(len(lines), 5)
        self.assertLessEqual(max(len(line) for line in lines), 20)


class OwnersThatEnd(Programs):
    def test_a_killed_owner_is_told_from_a_living_one(self):
        owner = Owner(self, "s1")
        owner.kill()
        self.assertTrue(os.path.exists(owner.live))
        facts = self.json_of("kvtool", "stat", "s1")
        self.assertIsNone(facts["owner"])
        self.refused("kvtool", "leases", "s1", expect=1, saying="no process has s1 open")
        self.refused("kvtool", "top", "s1", expect=1, saying="no process has s1 open")
        self.assertEqual(self.json_of("kvtool", "check", "s1")["damaged"], 0)

    def test_top_ends_when_the_store_is_closed(self):
        owner = Owner(self, "s2")
        watcher = subprocess.Popen(["build/bin/kvtool", "top", "s2", "--interval", "0.1"],
                                   cwd=self.scratch, stdout=subprocess.PIPE)
        watcher.stdout.readline()
        owner.kill()
        self.assertEqual(watcher.wait(30), 0)
        watcher.stdout.close()

    def test_a_page_that_lies_is_not_believed(self):
        owner = Owner(self, "s3")
        try:
            with open(owner.live, "r+b") as file:
                file.write(b"\xff" * 4096)
            # The owner writes it again; until then, there is none.
            done = subprocess.run(["build/bin/kvtool", "stat", "s3"], cwd=self.scratch,
                                  capture_output=True, timeout=60)
            self.assertIn(done.returncode, (0, 1))
            self.assertIn(str(owner.process.pid).encode(), done.stdout + done.stderr)
        finally:
            owner.kill()

    def test_an_owner_that_shows_nothing_is_found_by_its_lock(self):
        self.run_program("kvtool", "put", "--create", "--nvme", "64M", "s4", "a/01", input=b"x")
        with open(self.path("s4", "LOCK"), "r+b") as lock:
            programs.lock_like_a_store(lock)
            self.refused("kvtool", "stat", "s4", expect=1,
                         saying=f"s4 is open: process {os.getpid()} (")
            self.refused("kvtool", "leases", "s4", expect=1, saying="shows nothing")

    def test_what_cannot_be_seen_is_not_called_closed(self):
        self.write("file", "no folder")
        for command in ("leases", "top"):
            self.refused("kvtool", command, "s5", expect=1, saying="there is no store in s5")
            for path, why in (("file", "Not a directory"), ("x/" * 3000, "File name too long")):
                self.refused("kvtool", command, path, expect=1, saying=f"open: {why}")


if __name__ == "__main__":
    programs.main()
