#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_mutants.py - shows that the tests can fail.

Usage: run_mutants.py [--fit BUILD | NAME...]. Applies each mutant of mutants.txt (default: all) to
a scratch copy of the tree, builds the tests that must notice it, and runs them: at least one must
fail. First they all run once without a mutant, because a test that is red anyway proves nothing.
Prints a table; the exit code is 1 when one survives, no longer fits its file, does not build, or
could not be judged. --fit only looks whether each fits its file, and whether the build in that
folder knows its tests: it builds and runs nothing.
"""
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LIST = os.path.join(ROOT, "tests", "mutants", "mutants.txt")
TREE = os.path.join(ROOT, "build", "mutants", "tree")
LOGS = os.path.join(ROOT, "build", "mutants", "logs")
FIELDS = ("why", "file", "from", "to", "tests")
# Programs that a test needs, where they are not called like the test.
TARGETS = [
    (re.compile(r"crash_kill"), ["crash_kill"]),
    (re.compile(r"crash_shutdown"), ["crash_shutdown"]),
    (re.compile(r"crash_blocklog"), ["crash_blocklog"]),
    (re.compile(r"crash_eio"), ["crash_eio"]),
    (re.compile(r"crash_\w+"), ["crash_check"]),
    (re.compile(r"golden_tools"), ["kvtool", "golden_make"]),
    (re.compile(r"golden_decode"), ["decode_reference"]),
    (re.compile(r"test_kvtool_files"), ["crash_shim", "kvtool", "kvtool_failing", "tierbench"]),
    (re.compile(r"test_kvtool_import"), ["kvtool", "kvtool_failing"]),
    (re.compile(r"test_(kvtool\w*|tierbench|documents)"), ["kvtool", "tierbench"]),
]
# Short runs, whatever a long run around this one asks for: a mutant is a coarse error.
COUNTS = {"KVT_TEST_SEEDS": "10", "KVT_CRASH_STATES": "60", "KVT_KILL_ROUNDS": "3"}


class Mutant:
    """A block of mutants.txt: each field is the list of its values."""

    def __init__(self, name):
        self.name = name
        self.fields = {word: [] for word in FIELDS}

    def tests(self):
        return self.fields["tests"][0].split()

    def is_whole(self):
        counts = [len(self.fields[word]) for word in ("file", "from", "to")]
        singles = [len(self.fields[word]) for word in ("why", "tests")]
        return singles == [1, 1] and counts[0] > 0 and len(set(counts)) == 1

    def changed(self, root):
        """The text of each file with the mutant in it; why that is impossible, or None."""
        texts = {}
        for name, old, new in zip(*(self.fields[word] for word in ("file", "from", "to"))):
            text = texts.get(name) or read(os.path.join(root, name)).decode()
            if text.count(old) != 1:
                return {}, f"`{old}` occurs {text.count(old)} times in {name}, not once"
            texts[name] = text.replace(old, new)
        return texts, None

    def apply(self):
        """Change the scratch tree; returns why that is impossible, or None."""
        texts, problem = self.changed(TREE)
        for name, text in texts.items():
            with open(os.path.join(TREE, name), "w", encoding="utf-8") as file:
                file.write(text)
        return problem

    def undo(self):
        """Bring the files back, newer than what was built from the mutant."""
        for name in self.fields["file"]:
            shutil.copyfile(os.path.join(ROOT, name), os.path.join(TREE, name))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_mutants():
    mutants = {}
    current = None
    for line in read(LIST).decode().splitlines():
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if not word or word.startswith("#"):
            continue
        if word == "mutant" and rest not in mutants:
            current = mutants[rest] = Mutant(rest)
        elif word in FIELDS and current is not None:
            current.fields[word].append(rest.replace("\\n", "\n"))
        else:
            sys.exit(f"mutants.txt: what is `{line}`?")
    for mutant in mutants.values():
        if not mutant.is_whole():
            sys.exit(f"mutants.txt: {mutant.name} lacks a field")
    return mutants


def sync():
    """Make TREE a copy of this tree; equal files keep their times, so that they are not rebuilt."""
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    kept = {n for n in names if n and os.path.isfile(os.path.join(ROOT, n))}
    for name in kept:
        source, target = os.path.join(ROOT, name), os.path.join(TREE, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target) or read(source) != read(target):
            shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for folder, folders, files in os.walk(TREE):
        folders[:] = [f for f in folders if os.path.join(folder, f) != os.path.join(TREE, "build")]
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, TREE) not in kept:
                os.remove(path)


def targets_of(tests):
    targets = set()
    for test in tests:
        special = [names for pattern, names in TARGETS if pattern.fullmatch(test)]
        targets.update(special[0] if special else [test])
        if test.startswith("fuzz_"):
            targets.add("fuzz_seeds")
    return sorted(targets)


def run(log, *command, **more):
    with open(log, "ab") as file:
        return subprocess.run(command, cwd=TREE, stdout=file, stderr=subprocess.STDOUT, check=False,
                              **more).returncode


def build(log, tests, folder="build"):
    jobs = str(os.cpu_count() or 1)
    return run(log, "cmake", "--build", folder, "-j", jobs, "--target", *targets_of(tests)) == 0


def passes(log, tests, folder="build"):
    expression = "^(" + "|".join(tests) + ")$"
    # The tests have longer limits of their own, which ctest prefers to one given here.
    return run(log, "timeout", "120", "ctest", "--test-dir", folder, "--no-tests=error",
               "--output-on-failure", "-R", expression, env={**os.environ, **COUNTS}) == 0


def fresh_log(name):
    path = os.path.join(LOGS, name + ".log")
    if os.path.exists(path):
        os.remove(path)
    return path


def noticed_by(log):
    """The test cases that failed, or the tests, where these do not name their cases."""
    text = read(log).decode("utf-8", "replace")
    found = re.findall(r"^(?:\d+: )?\[  FAILED  \] (\w+)$", text, re.M)
    return ", ".join(sorted(set(found or re.findall(r"^\s+\d+ - (\w+) \(", text, re.M))))


def red_without_mutants(tests):
    """The tests that are red in the unchanged tree."""
    log = fresh_log("unchanged")
    if run(log, "cmake", "--preset", "release") != 0 or not build(log, tests):
        sys.exit(f"the unchanged tree does not build: {log}")
    return {test for test in tests if not passes(log, [test])}


def judge(mutant, red):
    log = fresh_log(mutant.name)
    problem = mutant.apply()
    try:
        if problem is not None:
            return "BROKEN", problem
        if red & set(mutant.tests()):
            return "NOT JUDGED", "red without it: " + " ".join(red & set(mutant.tests()))
        if not build(log, mutant.tests()):
            return "BROKEN", f"does not build: {log}"
        if passes(log, mutant.tests()):
            return "SURVIVED", f"{mutant.fields['why'][0]} ({mutant.fields['tests'][0]})"
        return "caught", noticed_by(log)
    finally:
        mutant.undo()


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def fit(mutants, folder):
    """Whether each mutant fits its file, and the build in `folder` has its tests and what they
    need; prints what does not."""
    tests = set(re.findall(r"^ *Test +#\d+: (\S+)", output_of("ctest", "--test-dir", folder, "-N"),
                           re.M))
    targets = set(re.findall(r"^(\S+): ", output_of("cmake", "--build", folder, "--target", "help"),
                             re.M))
    count = 0
    for name, mutant in mutants.items():
        problem = mutant.changed(ROOT)[1]
        missing = set(mutant.tests()) - tests | set(targets_of(mutant.tests())) - targets
        if problem is None and missing:
            problem = "there is no " + ", ".join(sorted(missing))
        if problem is not None:
            print(f"{name}: {problem}")
            count += 1
    print(f"{len(mutants)} mutants, {count} fit no more")
    return int(count > 0)


def main():
    mutants = read_mutants()
    if sys.argv[1:2] == ["--fit"]:
        return fit(mutants, sys.argv[2])
    unknown = [name for name in sys.argv[1:] if name not in mutants]
    if unknown:
        sys.exit(f"no such mutant: {' '.join(unknown)}")
    chosen = [mutants[name] for name in sys.argv[1:] or mutants]
    os.makedirs(LOGS, exist_ok=True)
    os.makedirs(TREE, exist_ok=True)
    sync()
    red = red_without_mutants(sorted({test for mutant in chosen for test in mutant.tests()}))
    counts = {}
    for mutant in chosen:
        begin = time.monotonic()
        verdict, text = judge(mutant, red)
        counts[verdict] = counts.get(verdict, 0) + 1
        seconds = time.monotonic() - begin
        print(f"{verdict:10} {mutant.name:32} {seconds:5.1f} s  {text}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return 0 if set(counts) == {"caught"} else 1


if __name__ == "__main__":
    sys.exit(main())
