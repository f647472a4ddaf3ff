#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_fuzz.py - runs the fuzz targets, and first shows that a finding would be noticed.

Usage: run_fuzz.py --programs FOLDER [--seconds N] [--csv FILE] [TARGET...]
       run_fuzz.py --programs FOLDER --replay-canary CORPUS

The first form is for programs that are linked with libFuzzer (`make fuzz`): N seconds for each
target, from the seeds of fuzz_seeds, the corpus in the tree and what earlier runs found (in
FOLDER/../fuzz-work). Prints a table; when all targets were run appends a row to FILE, in which the
seconds are what counts; exit code 1 on a finding (its input is left in FOLDER/../fuzz-findings), or
when the canary lives. The second form is a test: the canary over its corpus must be noticed.
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "long"))
import long_rows  # noqa: E402  (the folder beside this one)

CORPUS = os.path.join(HERE, "corpus")
# The longest input, where it is not 8 KiB.
LENGTHS = {"lmdb_check": 1 << 18, "nvme_scan": (1 << 18) + 2, "batch_header": 1 << 16,
           "codec": 1 << 15, "live_page": 1 << 16, "store_file": 8200}
LENGTH = 8192
CANARY_SECONDS = 60


def targets_there():
    found = [n[5:-2] for n in os.listdir(HERE) if re.fullmatch(r"fuzz_\w+\.c", n)]
    return sorted(set(found) - {"canary", "replay", "seeds", "world"})


def was_only_late(program, log):
    """The machine stood still, not the target: the input that took too long is quick now."""
    written = re.findall(r"Test unit written to (\S+-timeout-\S+)", log)
    if not written:
        return False
    again = subprocess.run([program, "-timeout=20", written[-1]], check=False, capture_output=True)
    if again.returncode == 0:
        os.remove(written[-1])
    return again.returncode == 0


def run_target(folder, target, seconds):
    """Returns (executions, log, whether something was found)."""
    build = os.path.dirname(os.path.abspath(folder))
    work = os.path.join(build, "fuzz-work", target)
    findings = os.path.join(build, "fuzz-findings")
    for path in (work, findings):
        os.makedirs(path, exist_ok=True)
    corpora = [os.path.join(folder, "fuzz-seeds", target), os.path.join(CORPUS, target)]
    if target == "canary":
        corpora = []  # It has to find its word by itself.
    command = [os.path.join(folder, "fuzz_" + target), f"-max_total_time={seconds}",
               f"-max_len={LENGTHS.get(target, LENGTH)}", "-timeout=20", "-rss_limit_mb=2048",
               "-print_final_stats=1", f"-artifact_prefix={findings}/{target}-", work]
    done = subprocess.run(command + [c for c in corpora if os.path.isdir(c)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = done.stdout.decode("utf-8", "replace")
    is_found = done.returncode != 0 and not was_only_late(command[0], log)
    counts = re.findall(r"stat::number_of_executed_units:\s+(\d+)", log)
    return int(counts[-1]) if counts else 0, log, is_found


def fuzz(folder, seconds, csv, targets):
    _, log, is_found = run_target(folder, "canary", CANARY_SECONDS)
    if not is_found or "this does not hold" not in log:
        print("the canary lives: a finding would not be noticed\n" + log[-2000:])
        return 1
    print("canary          found, as it must be")
    commit = long_rows.commit_now("fuzz")
    total, failures = 0, 0
    for target in targets:
        count, log, is_found = run_target(folder, target, seconds)
        total += count
        failures += is_found or count == 0
        print(f"{target:15} {count:10} executions {'FOUND SOMETHING' if is_found else ''}",
              flush=True)
        if is_found or count == 0:
            print(log[-6000:])
    print(f"{total} executions of {len(targets)} targets, {seconds} seconds of each, "
          f"{failures} with findings")
    if csv and targets == targets_there():
        long_rows.append(csv, "fuzz", commit, (len(targets), seconds, failures))
    return 1 if failures else 0


def replay_canary(folder, corpus):
    """The canary's corpus ends it; a file without its word does not."""
    program = os.path.join(folder, "fuzz_canary")
    bad = subprocess.run([program, corpus], check=False, capture_output=True)
    good = subprocess.run([program, os.path.abspath(__file__)], check=False, capture_output=True)
    if bad.returncode == 0 or b"this does not hold" not in bad.stderr:
        print("the canary's finding was not noticed")
        return 1
    if good.returncode != 0:
        print("a run without a finding failed: " + good.stderr.decode("utf-8", "replace"))
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--csv")
    parser.add_argument("--replay-canary")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    if arguments.replay_canary:
        return replay_canary(arguments.programs, arguments.replay_canary)
    unknown = set(arguments.targets) - set(targets_there())
    if unknown:
        parser.error("no such target: " + " ".join(sorted(unknown)))
    return fuzz(arguments.programs, arguments.seconds, arguments.csv,
                arguments.targets or targets_there())


if __name__ == "__main__":
    sys.exit(main())
