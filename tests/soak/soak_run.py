#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak_run.py - `make soak`: a store under load on a real disk, judged by its bars.

Usage: soak_run.py [--minutes N] [--dir DIR] [--rows FILE]. Runs build/tests/soak_store in DIR
(default: the folder build), leaves a line a minute in build/soak.csv, shows the last line with each
bar, and adds a row to tests/long.csv. Nothing else should run on the machine meanwhile: what takes
its processors or its disk is judged too.
"""
import argparse
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "long"))
import long_rows  # noqa: E402  (the folder beside this one)

BUILD = os.path.join(long_rows.ROOT, "build")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--dir", default=BUILD)
    parser.add_argument("--rows", default=long_rows.CSV)
    arguments = parser.parse_args()
    commit = long_rows.commit_now("soak")
    left = os.path.join(arguments.dir, "soak")
    if os.path.isfile(os.path.join(left, "probe")):
        shutil.rmtree(left)  # Of a run that failed, or was ended.
    lines = os.path.join(BUILD, "soak.csv")
    done = subprocess.run([os.path.join(BUILD, "tests", "soak_store"), "--dir", arguments.dir,
                           "--minutes", str(arguments.minutes), "--csv", lines], check=False)
    with open(lines, encoding="utf-8") as file:
        minutes = max(0, len(file.read().splitlines()) - 1)
    long_rows.append(arguments.rows, "soak", commit, (1, minutes, int(done.returncode != 0)))
    print(f"a line a minute: {lines}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
