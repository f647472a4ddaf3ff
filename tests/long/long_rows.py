#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""long_rows.py - tests/long.csv: what long runs have counted, and which of it still holds.

Usage: long_rows.py [--csv FILE] [--fit BUILD]. A row counts as long as none of the files that its
suite tests has changed since its commit, the tree had no changes in them when it ran, and nothing
failed. Prints, a suite, the rows and the sum that count, beside what shared/design/testing.md asks
for. A row of `fuzz` counts for each target by itself: that which counts least has the last word.

--fit BUILD: whether FUZZED names all that the programs of the fuzz targets there are made of.
"""
import argparse
import csv
import datetime
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CSV = os.path.join(ROOT, "tests", "long.csv")
HEADER = ["time_utc", "suite", "commit", "seeds", "states", "failures"]

LIBRARY = ["base", "index", "tiers", "engine", "include"]
WORLD = LIBRARY + ["tests/support"]
JUDGED = LIBRARY + ["tests/support/disk_audit.*", "tests/support/store_audit.*",
                    "tests/support/payload.h"]
CRASH = JUDGED + ["tests/crash"]
# Of each fuzz target: what its program is made of besides FUZZED_BY_ALL (--fit proves it).
FUZZED_BY_ALL = ["base", "include", "tests/fuzz", "engine/live_page.*", "index/segment_facts.*",
                 "tiers/batch_header.*", "tiers/copy_pair.*", "tiers/tier.h", "index/index.h",
                 "tests/support/stop_on_proof.h"]
FUZZED = {
    "archive": ["tools/kvtool_archive*", "tools/kvtool_frame.*", "tools/common"],
    "batch_header": [],
    "block_record": [],
    "codec": ["tiers/codec"],
    "key": ["tools/kvtool_key.*", "tools/kvtool.h", "tools/common"],
    "layout": LIBRARY,
    "live_page": [],
    "lmdb_check": ["index/lmdb_*"],
    "names_file": ["tiers/names_file.*"],
    "nvme_scan": ["tiers/nvme_*", "tiers/segment.*", "tiers/io"],
    "options": LIBRARY,
    "store_file": ["tiers/store_file.*"],
}
# Suite: what is counted, how much of it testing.md asks for (make test-long), the files it tests.
SUITES = {
    "crash": ("distinct crash states", 2_000_000, CRASH),
    "kill": ("rounds of kill -9", 20_000, CRASH),
    "shutdown": ("cuts of ext4 and XFS", 10_000, CRASH),
    "blocklog": ("disks below ext4 after a cut", 10_000, CRASH),
    "eio": ("faults of a disk below ext4", 2_000, CRASH),
    "fault": ("runs with one fault", 200_000, WORLD + ["tests/fault"]),
    "damage": ("corrupted stores", 1_000_000, WORLD + ["tests/damage"]),
    "fuzz": ("seconds of each target", 3_600, LIBRARY + ["tests/fuzz", "tools"]), # Or FUZZED.
    "sim": ("simulated lives of 2,000 operations", 1_000_000, WORLD + ["tests/sim"]),
    "model": ("modelled runs", 20_000, WORLD + ["tests/model"]),
    "soak": ("minutes of make soak", 60, JUDGED + ["tests/soak", "bench/pattern.c"]),
}


def paths_of(suite):
    paths = [*FUZZED_BY_ALL, *FUZZED[suite[5:]]] if suite[5:] in FUZZED else SUITES[suite][2]
    return [*paths, ":(exclude)*.md"]


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


def row_counts(row, suite):
    """None, or why the row does not count for the suite."""
    if suite not in SUITES and suite[5:] not in FUZZED:
        return "no such suite"
    if int(row["failures"]) != 0:
        return "something failed"
    if row["commit"].endswith("+"):
        return "it ran with changes that were not committed"
    changed = git("diff", "--quiet", row["commit"], "--", *paths_of(suite))
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


def suite_line(name, rows, suite, what, asked):
    """Prints it; returns what counts."""
    good = [row for row in rows if row_counts(row, suite) is None]
    total = sum(int(row["states"]) for row in good)
    print(f"{name:17} {len(good):5} {len(rows) - len(good):5} {total:10} {asked:10}  {what}")
    return total


def print_rows(rows):
    print(f"{'suite':17} {'rows':>5} {'stale':>5} {'counted':>10} {'asked':>10}  what")
    for suite, (what, asked, _) in SUITES.items():
        own = [row for row in rows if row["suite"] == suite]
        if suite != "fuzz":
            suite_line(suite, own, suite, what, asked)
            continue
        for target in FUZZED:
            suite_line("fuzz_" + target, own, "fuzz_" + target, what, asked)
    for row in rows:
        if int(row["failures"] or 0) != 0 and row_counts(row, row["suite"]) is not None:
            print(f"failed: {row['time_utc']} {row['suite']} {row['commit']}")


# --- What fuzz targets are made of ----------------------------------------------------------------

def sources_of(program):
    """The project's sources that it is linked from, as its debug information says."""
    text = subprocess.run(["readelf", "--debug-dump=info", program], check=True,
                          capture_output=True).stdout.decode("utf-8", "replace")
    units = re.findall(r"\(DW_TAG_compile_unit\)(?:\n.*?)*?DW_AT_name\s*:.*?(\S+)\s*$", text,
                       re.M)
    paths = (os.path.relpath(os.path.join(ROOT, unit), ROOT) for unit in units)
    return {path for path in paths if not path.startswith("..")}


def with_headers(sources):
    """The same with all that they include of the project, and that these include."""
    tracked = git("ls-files", "*.h").stdout.decode().split()
    found, left = set(), list(sources)
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            names = re.findall(r'^#include "(.*)"', file.read(), re.M)
        left += [each for each in tracked for name in names if ("/" + each).endswith("/" + name)]
    return found


def is_named(path, patterns):
    return any(path.startswith(each + "/") or fnmatch.fnmatch(path, each) for each in patterns)


def fit(build):
    missing = []
    for target in FUZZED:
        files = with_headers(sources_of(os.path.join(build, "tests", "fuzz_" + target)))
        patterns = paths_of("fuzz_" + target)
        missing += [f"fuzz_{target}: {path}" for path in sorted(files)
                    if not is_named(path, patterns)]
        if not any(path.endswith(f"fuzz_{target}.c") for path in files):
            missing.append(f"fuzz_{target}: its program names no source")
    there = {name[5:-2] for name in os.listdir(os.path.join(ROOT, "tests", "fuzz"))
             if re.fullmatch(r"fuzz_\w+\.c", name)}
    missing += [f"fuzz_{target}: FUZZED does not know it"
                for target in there - {"canary", "replay", "seeds", "world"} - set(FUZZED)]
    print("\n".join(missing) if missing else "all is named")
    return 1 if missing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--csv", default=CSV)
    parser.add_argument("--fit")
    arguments = parser.parse_args()
    if arguments.fit:
        return fit(arguments.fit)
    print_rows(read(arguments.csv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
