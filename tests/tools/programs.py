# SPDX-License-Identifier: Apache-2.0
"""programs.py - what the tests of the programs share: running them in a scratch folder.

The scratch folder lies in the build folder (a real disk, unlike /tmp on some machines) and looks
like the project: programs, library, traces and examples, so that commands from the documents run as
they are written.
"""
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

TRACE = "bench/traces/conversation_h1.jsonl.zst"


class Programs(unittest.TestCase):
    source = ""
    programs = ""
    library = ""  # May be missing.

    @classmethod
    def setUpClass(cls):
        parent = os.path.join(os.path.dirname(cls.programs), "tests")
        os.makedirs(parent, exist_ok=True)
        cls.scratch = tempfile.mkdtemp(prefix="tools.", dir=parent)
        os.makedirs(os.path.join(cls.scratch, "build"))
        os.makedirs(os.path.join(cls.scratch, "bench"))
        os.symlink(cls.programs, os.path.join(cls.scratch, "build", "bin"))
        os.symlink(os.path.join(os.path.dirname(cls.programs), "lib"),
                   os.path.join(cls.scratch, "build", "lib"))
        os.symlink(os.path.join(cls.source, "examples"), os.path.join(cls.scratch, "examples"))
        cls.library = os.path.join(cls.scratch, "build", "lib", "libkvtier.so")
        os.symlink(os.path.join(cls.source, "bench", "traces"),
                   os.path.join(cls.scratch, "bench", "traces"))
        shutil.copy(os.path.join(cls.source, "LICENSE"), cls.scratch)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.scratch, *parts)

    def write(self, name, text):
        """A file in the scratch folder; its name."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def run_program(self, *words, expect=0, **more):
        """Runs build/bin/WORDS[0]; its exit code must be `expect`, and never a signal's."""
        command = [f"build/bin/{words[0]}", *[str(word) for word in words[1:]]]
        done = subprocess.run(command, cwd=self.scratch, capture_output=True, timeout=240, **more)
        self.assertEqual(done.returncode, expect,
                         f"{command}\n{done.stdout[-2000:]!r}\n{done.stderr[-2000:]!r}")
        return done

    def attempt(self, *words):
        """Runs build/bin/WORDS[0], whatever comes of it."""
        return subprocess.run([f"build/bin/{words[0]}", *[str(word) for word in words[1:]]],
                              cwd=self.scratch, capture_output=True, timeout=120)

    def attempt_failing(self, call, number, *words, kill=False, late=False, unread=None):
        """Runs kvtool, of which that call of the library fails, or ends it; `late`: though it does
        its work. Gets of the key `unread` miss."""
        program = os.path.join(os.path.dirname(self.programs), "tests", "kvtool_failing")
        kind = "KVT_KILL_CALL" if kill else "KVT_LATE_CALL" if late else "KVT_FAIL_CALL"
        wish = {kind: f"{call}:{number}"}
        if unread is not None:
            wish["KVT_UNREAD_KEY"] = unread
        return subprocess.run([program, *words], cwd=self.scratch, capture_output=True, timeout=120,
                              env=dict(os.environ, **wish))

    def json_of(self, *words, **more):
        return json.loads(self.run_program(*words, "--json", **more).stdout)

    def refused(self, *words, expect=2, saying="", **more):
        """The program refuses with one sentence on stderr, and nothing else."""
        done = self.run_program(*words, expect=expect, **more)
        text = done.stderr.decode("utf-8", "replace")
        self.assertRegex(text, rf"\A{words[0]}: [^\n]+\n\Z")
        self.assertIn(saying, text)
        return done

    def replay(self, directory, *more, requests=20, nvme="64M", host="16M", expect=0, **keep):
        return self.run_program(
            "tierbench", "replay", "--trace", TRACE, "--dir", directory, "--requests", requests,
            "--host", host, "--nvme", nvme, "--ceiling-seconds", "none", "--json", *more,
            expect=expect, **keep)


def lock_like_a_store(file):
    """Takes the write lock of an open store (an OFD lock, which another process's open sees)."""
    f_ofd_setlk = 37
    flock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(file, f_ofd_setlk, flock)


def main():
    # Programs keep ignoring what we ignore, as a shell without job control has it behind &.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    Programs.source = os.path.abspath(sys.argv[1])
    Programs.programs = os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
