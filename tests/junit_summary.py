#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""junit_summary.py - the counts of one ctest run, and the output of what failed, in full.

Usage: junit_summary.py FILE.xml. The first line is `passed failed skipped`; then, for each test
that failed, its name and output, and for each that was skipped its name and reason. A missing or
broken file counts as one failure: a run that left no result did not succeed.
"""
import sys
import xml.etree.ElementTree as xml


def output_of(case):
    node = case.find("system-out")
    return (node.text or "").rstrip() if node is not None else ""


def main():
    try:
        cases = list(xml.parse(sys.argv[1]).getroot().iter("testcase"))
    except (OSError, xml.ParseError) as problem:
        print(f"0 1 0\n  no result of ctest: {problem}")
        return
    bad = [c for c in cases if c.get("status") == "fail" or c.find("failure") is not None]
    skip = [c for c in cases if c not in bad and c.find("skipped") is not None]
    good = len(cases) - len(bad) - len(skip)
    if not cases:
        print("0 1 0\n  ctest ran no test")
        return
    print(good, len(bad), len(skip))
    for case in bad:
        print(f"--- FAILED {case.get('name')}")
        print(output_of(case))
        print(f"--- end of {case.get('name')}")
    for case in skip:
        reason = output_of(case).split("\n")[-1]
        print(f"  skipped {case.get('name')}: {reason}")


main()
