#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py - how much of format, recovery, allocation and commit the tests reach.

Usage: coverage.py [--show FILE | --marks | --marks-fit] [BUILD]. Reads what the tests of a build
with the preset `coverage` (default: build/coverage) have counted, prints a table, and fails below
95 % of the lines or 85 % of the branches of all FILES together. There are no exclusion marks.
--show: the lines and branches of one file that were not reached. --marks: whether each rare state
of marks.txt was met so far. --marks-fit: only whether each has its place in the code; needs no
build.
"""
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MARKS = os.path.join(ROOT, "tests", "coverage", "marks.txt")
LINES_MIN, BRANCHES_MIN = 95.0, 85.0
GROUPS = {
    "format": ["base/block_record.c", "tiers/batch_header.c", "tiers/store_file.c",
               "tiers/names_file.c", "tiers/copy_pair.c", "tiers/image.c", "index/*.c"],
    "recovery": ["tiers/nvme_scan.c", "engine/recover.c", "engine/recover_table.c",
                 "engine/rebuild.c", "engine/rebuild_choose.c", "engine/rebuild_scan.c",
                 "engine/strays.c"],
    "allocation": ["tiers/segment.c", "tiers/slab.c", "tiers/nvme_files.c", "engine/reclaim.c",
                   "engine/relocate.c", "engine/victim.c", "engine/victim_scan.c",
                   "engine/block_facts.c", "engine/patience.c", "engine/room.c"],
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


class Mark:
    """A block of marks.txt."""

    def __init__(self, name):
        self.name = name
        self.why = self.file = self.line = ""

    def place(self):
        """The number of its line; 0: it has none, or several."""
        with open(os.path.join(ROOT, self.file), encoding="utf-8") as file:
            text = file.read()
        line = self.line.replace("\\n", "\n")
        if not line or text.count(line) != 1:
            return 0
        return text.count("\n", 0, text.index(line) + len(line)) + 1


def read_marks():
    marks = []
    with open(MARKS, encoding="utf-8") as file:
        for line in file:
            word, _, rest = line.strip().partition(" ")
            if word == "mark":
                marks.append(Mark(rest.strip()))
            elif word in ("why", "file", "line") and marks:
                setattr(marks[-1], word, rest.strip())
            elif word and not word.startswith("#"):
                sys.exit(f"marks.txt: what is `{line.strip()}`?")
    return marks


def marks_fit():
    lost = [mark for mark in read_marks() if mark.place() == 0]
    for mark in lost:
        print(f"{mark.name}: `{mark.line}` does not occur once in {mark.file}")
    return int(bool(lost))


def marks_met(build):
    """Prints the states that were not met."""
    marks = read_marks()
    files = {mark.file: counts_of(build, mark.file)[0] for mark in marks}
    missed = [mark for mark in marks if not files[mark.file].get(mark.place(), False)]
    for mark in missed:
        print(f"NOT MET {mark.name}: {mark.why} ({mark.file}:{mark.place()})")
    print(f"{len(marks) - len(missed)} of {len(marks)} rare states were met by random runs")
    return int(bool(missed))


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--marks-fit"]:
        return marks_fit()
    if arguments[:1] == ["--marks"]:
        return marks_met(os.path.abspath(arguments[1]))
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
