#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""long_rows.py - tests/long.csv: what long runs have counted, and which of it still holds.

Usage: long_rows.py [--csv FILE]. A row counts as long as none of the files that its suite tests has
changed since its commit, the tree had no changes in them when it ran, and nothing failed. Prints, a
suite, the rows and the sum that count, beside what shared/design/testing.md asks for.
"""
import csv
import datetime
import os
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CSV = os.path.join(ROOT, "tests", "long.csv")
HEADER = ["time_utc", "suite", "commit", "seeds", "states", "failures"]

LIBRARY = ["base", "index", "tiers", "engine", "include"]
WORLD = LIBRARY + ["tests/support"]
JUDGED = LIBRARY + ["tests/support/disk_audit.c", "tests/support/store_audit.c"]
CRASH = JUDGED + ["tests/crash"]
# Suite: what is counted, how much of it testing.md asks for (make test-long), the files it tests.
SUITES = {
    "crash": ("distinct crash states", 2_000_000, CRASH),
    "kill": ("rounds of kill -9", 20_000, CRASH),
    "shutdown": ("cuts of ext4 and XFS", 10_000, CRASH),
    "blocklog": ("disks below ext4 after a cut", 10_000, CRASH),
    "eio": ("faults of a disk below ext4", 2_000, CRASH),
    "fault": ("runs with one fault", 200_000, WORLD + ["tests/fault"]),
    "damage": ("corrupted stores", 1_000_000, WORLD + ["tests/damage"]),
    "fuzz": ("seconds of each target", 3_600, LIBRARY + ["tests/fuzz", "tools"]),
    "sim": ("simulated lives of 2,000 operations", 1_000_000, WORLD + ["tests/sim"]),
    "model": ("modelled runs", 20_000, WORLD + ["tests/model"]),
    "soak": ("minutes of make soak", 60, JUDGED + ["tests/soak", "bench/pattern.c"]),
}


def paths_of(suite):
    return [*SUITES[suite][2], ":(exclude)*.md"]


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=False, capture_output=True)


def commit_now(suite):
    """The commit, with a plus when files of the suite have changes that it does not have."""
    commit = git("rev-parse", "--short=12", "HEAD").stdout.decode().strip()
    changed = git("status", "--porcelain", "--", *paths_of(suite)).stdout
    return commit + ("+" if changed else "")


def append(path, suite, commit, counts):
    """One row, with what commit_now() said before the run and (seeds, states, failures); the file
    is made when it is not there."""
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(HEADER)
        time = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        writer.writerow([time, suite, commit, *counts])


def row_counts(row):
    """None, or why the row does not count."""
    if row["suite"] not in SUITES:
        return "no such suite"
    if int(row["failures"]) != 0:
        return "something failed"
    if row["commit"].endswith("+"):
        return "it ran with changes that were not committed"
    changed = git("diff", "--quiet", row["commit"], "--", *paths_of(row["suite"]))
    if changed.returncode == 1:
        return "what it tests has changed since"
    if changed.returncode != 0:
        return "its commit is not there"
    return None


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main():
    path = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--csv" else CSV
    rows = [(row, row_counts(row)) for row in read(path)]
    print(f"{'suite':8} {'rows':>5} {'stale':>5} {'counted':>10} {'asked':>10}  what")
    for suite, (what, asked, _) in SUITES.items():
        own = [(row, reason) for row, reason in rows if row["suite"] == suite]
        good = [row for row, reason in own if reason is None]
        total = sum(int(row["states"]) for row in good)
        print(f"{suite:8} {len(good):5} {len(own) - len(good):5} {total:10} {asked:10}  {what}")
    for row, reason in rows:
        if reason is not None and int(row["failures"] or 0) != 0:
            print(f"failed: {row['time_utc']} {row['suite']} {row['commit']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
