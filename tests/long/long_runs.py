#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""long_runs.py - `make test-long`: seeds beyond those of `make test`, for as long as one likes.

Usage: long_runs.py [--minutes N] [--seed N] [--jobs N] [--csv FILE] [SUITE...]. The suites of
long_rows.py (but the soak) take turns, a slice each, until the time is over; so many slices at once
as --jobs says (two for each core: half of a crash state's time is waiting). Where nothing says
otherwise the seeds follow from the clock, and each slice prints its own. Each suite then has one
row in tests/long.csv, also after Ctrl-C or SIGTERM. A slice that fails leaves its output, with the
command that repeats it, in build/test-logs/long-*.log.
"""
import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import long_rows  # noqa: E402  (the folder of this file)

ROOT = long_rows.ROOT
TESTS = os.path.join(ROOT, "build", "tests")
LOGS = os.path.join(ROOT, "build", "test-logs")
WORKLOADS = ("create put_sync put_relaxed replace delete overlap evict hbm recycle relocate "
             "small_tier reopen recover rebuild_delete rebuild_replace rebuild_clear clear "
             "map_growth two_roots mixed disk_full").split()
MODELS = ["model_store", "model_tiers"]  # Those of whole stores, that take seeds.
FUZZ_SECONDS = 30
SLICE_SECONDS_MAX = 3600  # Whatever takes longer hangs: most slices take minutes.


def program(name, *arguments):
    return [os.path.join(TESTS, name), *map(str, arguments)]


def crash(seed):
    workload = WORKLOADS[seed % len(WORKLOADS)]
    return program("crash_check", "--workload", workload, "--seed", seed, "--states", 3000), {}


def kill(seed):
    return program("crash_kill"), {"KVT_KILL_ROUNDS": "200", "KVT_KILL_SEED": str(seed)}


def shutdown(seed):
    return program("crash_shutdown", "--seed", seed, "--cycles", 50), {}


def blocklog(seed):
    return program("crash_blocklog", "--seed", seed, "--states", 500), {}


def eio(seed):
    return program("crash_eio", "--seed", seed, "--cycles", 100), {}


def fault(seed):
    return program("fault_io", "--seed", seed, "--seeds", 1), {}


def damage(seed):
    return program("damage_stores", "--seed", seed, "--seeds", 1200), {}


def sim(seed):
    # Four lives of 1 to 1,600 operations each, fewer where the power goes before: counted below,
    # and mostly some 2,000 together.
    return program("sim_lives", "--seed", seed, "--seeds", 300, "--ops", 1600), {}


def model(seed):
    return program(MODELS[seed % len(MODELS)], "--seed", seed, "--seeds", 60), {}


def fuzz(seed):
    del seed
    return [sys.executable, "-B", os.path.join(ROOT, "tests", "fuzz", "run_fuzz.py"), "--programs",
            os.path.join(ROOT, "build", "fuzz", "tests"), "--seconds", str(FUZZ_SECONDS)], {}


# Suite: what makes a slice's command, how many seeds that is, where its output says what it counted
# (None: the seeds are what counts), how much of that is one of what long_rows.py counts.
SLICES = {
    "crash": (crash, 1, r"(\d+) distinct states", 1),
    "kill": (kill, 200, None, 1),
    "shutdown": (shutdown, 4, r"(\d+) cuts judged", 1),
    "blocklog": (blocklog, 1, r"(\d+) states judged", 1),
    "eio": (eio, 1, r"(\d+) faults met and judged", 1),
    "fault": (fault, 1, r"(\d+) lives with a fault", 1),
    "damage": (damage, 1200, r"(\d+) damaged stores", 1),
    "sim": (sim, 300, r"(\d+) operations in", 2000),
    "model": (model, 60, None, 1),
    "fuzz": (fuzz, 12, r"(\d+) seconds of each", 1),
}


def slice_seed(seed, number):
    """Slices far apart, so that those of two runs do not take the same seeds; crash_writers.c makes
    versions of seeds below 2^36."""
    text = f"{seed} {number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 29


class Runs:
    """Slices of suites, several at once, until the time is over or stop() is called."""

    def __init__(self, suites, seed, seconds):
        self.slice_count = 0
        self.sums = {suite: (0, 0, 0) for suite in suites}
        self.spent = dict.fromkeys(suites, 0.0)
        self.seed = seed
        self.end = time.monotonic() + seconds
        self.processes = set()
        self.lock = threading.Lock()

    def stop(self):
        with self.lock:
            self.end = 0
            for process in self.processes:
                process.kill()

    def work(self):
        """What one of several threads does."""
        while True:
            with self.lock:
                begin = time.monotonic()
                if begin >= self.end:
                    return
                # Whoever had the least time so far; the guess is mended when the slice is done.
                suite = min(self.spent, key=self.spent.get)
                self.spent[suite] += 1
                seed = slice_seed(self.seed, self.slice_count)
                self.slice_count += 1
                make = SLICES[suite][0]
                command, more = make(seed)
                process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **more},
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.processes.add(process)
            try:
                output = process.communicate(timeout=SLICE_SECONDS_MAX)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                output = process.communicate()[0]
            text = output.decode("utf-8", "replace")
            with self.lock:
                self.processes.remove(process)
                if self.end == 0:
                    return
                seconds = time.monotonic() - begin
                counts = slice_counts(suite, seed, process, text, seconds)
                self.spent[suite] += seconds - 1
                self.sums[suite] = tuple(a + b for a, b in zip(self.sums[suite], counts))


def slice_counts(suite, seed, process, text, seconds):
    """Returns (seeds, what was counted, failures)."""
    _, seeds, pattern, unit = SLICES[suite]
    found = re.findall(pattern, text) if pattern else [str(seeds)]
    counted = int(found[-1]) // unit if found else 0
    is_failed = process.returncode != 0 or counted == 0
    print(f"{suite:8} seed {seed:<11} {counted:9} in {seconds:5.1f} s"
          f"{'  FAILED' if is_failed else ''}", flush=True)
    if is_failed:
        path = os.path.join(LOGS, f"long-{suite}-{seed}.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write("again: " + " ".join(process.args) +
                       f"\n(status {process.returncode})\n" + text)
        print(f"  {path}", flush=True)
    return (seeds, counted, 1) if is_failed else (seeds, counted, 0)


def build(suites):
    folders = [("release", "build", [])]
    if "fuzz" in suites:
        folders.append(("fuzz", os.path.join("build", "fuzz"), ["--target", "fuzz"]))
    for preset, folder, target in folders:
        for command in (["cmake", "--preset", preset], ["cmake", "--build", folder, *target]):
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    if "fuzz" in suites:
        tests = os.path.join(ROOT, "build", "fuzz", "tests")
        subprocess.run([os.path.join(tests, "fuzz_seeds"), os.path.join(tests, "fuzz-seeds")],
                       check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--csv", default=long_rows.CSV)
    parser.add_argument("suites", nargs="*")
    arguments = parser.parse_args()
    suites = arguments.suites or list(SLICES)
    unknown = set(suites) - set(SLICES)
    if unknown:
        parser.error("no such suite: " + " ".join(sorted(unknown)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.makedirs(LOGS, exist_ok=True)
    commits = {suite: long_rows.commit_now(suite) for suite in suites}
    build(suites)
    runs = Runs(suites, arguments.seed, 60 * arguments.minutes)
    workers = [threading.Thread(target=runs.work) for _ in range(arguments.jobs)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        runs.stop()
        for worker in workers:
            worker.join()
    for suite, (seeds, counted, failures) in runs.sums.items():
        if seeds > 0:
            long_rows.append(arguments.csv, suite, commits[suite], (seeds, counted, failures))
    return 1 if any(failures for _, _, failures in runs.sums.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
