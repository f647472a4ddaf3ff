#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py - how much of format, recovery, allocation and commit the tests reach.

Usage: coverage.py [--show FILE] [BUILD]. Reads what the tests of a build with the preset `coverage`
(default: build/coverage) have counted, prints a table, and fails below 95 % of the lines or 85 % of
the branches of all FILES together. There are no exclusion marks. --show: the lines and branches of
one file that were not reached.
"""
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LINES_MIN, BRANCHES_MIN = 95.0, 85.0
GROUPS = {
    "format": ["base/block_record.c", "tiers/batch_header.c", "tiers/store_file.c",
               "tiers/names_file.c", "tiers/copy_pair.c", "tiers/image.c", "index/*.c"],
    "recovery": ["tiers/nvme_scan.c", "engine/recover.c", "engine/recover_table.c",
                 "engine/rebuild.c", "engine/strays.c"],
    "allocation": ["tiers/segment.c", "tiers/slab.c", "tiers/nvme_files.c", "engine/reclaim.c",
                   "engine/relocate.c", "engine/victim.c", "engine/victim_scan.c",
                   "engine/block_facts.c", "engine/room.c"],
    "commit": ["tiers/nvme_put.c", "engine/commit.c", "engine/commit_batch.c",
               "engine/commit_group.c", "engine/commit_kills.c", "engine/committer.c"],
}


def counts_of(build, source):
    """{line: reached}, {(line, n): taken} of one source file."""
    layer = source.split("/")[0]
    data = os.path.join(build, "CMakeFiles", layer + ".dir", source + ".gcda")
    lines, branches = {}, {}
    if not os.path.exists(data):
        return lines, branches
    out = subprocess.run(["gcov", "--json-format", "--stdout", "-b", data], check=True,
                         capture_output=True, cwd=build).stdout
    for file in json.loads(out)["files"]:
        if not os.path.join("/", file["file"]).endswith("/" + source):
            continue
        for line in file["lines"]:
            number = line["line_number"]
            lines[number] = lines.get(number, False) or line["count"] > 0
            for n, branch in enumerate(line["branches"]):
                key = (number, n)
                branches[key] = branches.get(key, False) or branch["count"] > 0
    return lines, branches


def percent(reached):
    return 100.0 * sum(reached) / len(reached) if reached else 0.0


def sources_of(patterns):
    found = []
    for pattern in patterns:
        matches = sorted(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, pattern)))
        if not matches:
            sys.exit(f"there is no {pattern}")
        found += matches
    return found


def show(build, source):
    lines, branches = counts_of(build, source)
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        text = file.read().split("\n")
    for number, is_reached in sorted(lines.items()):
        own = [taken for (line, _), taken in sorted(branches.items()) if line == number]
        missing = own.count(False)
        if not is_reached or missing:
            what = "line  " if not is_reached else f"{missing} of {len(own)}"
            print(f"{number:5} {what}  {text[number - 1]}")


def main():
    arguments = sys.argv[1:]
    source = arguments[1] if arguments[:1] == ["--show"] else None
    rest = arguments[2:] if source else arguments
    build = os.path.abspath(rest[0] if rest else os.path.join(ROOT, "build", "coverage"))
    if source:
        show(build, source)
        return 0
    all_lines, all_branches = [], []
    print(f"{'file':32} {'lines':>6} {'':>7} {'branches':>8}")
    for group, patterns in GROUPS.items():
        print(f"{group}:")
        for name in sources_of(patterns):
            lines, branches = counts_of(build, name)
            all_lines += lines.values() or [False]
            all_branches += branches.values()
            print(f"  {name:30} {len(lines):6} {percent(list(lines.values())):6.1f} % "
                  f"{len(branches):6} {percent(list(branches.values())):6.1f} %")
    line_share, branch_share = percent(all_lines), percent(all_branches)
    print(f"{'all':32} {len(all_lines):6} {line_share:6.1f} % {len(all_branches):6} "
          f"{branch_share:6.1f} %")
    if line_share < LINES_MIN or branch_share < BRANCHES_MIN:
        print(f"below {LINES_MIN} % of lines or {BRANCHES_MIN} % of branches")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
