#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""policy_page.py - what bench/run-policies.sh measured: a page of tables, two CSV files a trace.

Usage: policy_page.py RAW RESULTS
"""
import csv
import os
import sys

TRACES = {
    "conversation_h1": ("Chat", "conversation_h1 (Mooncake, FAST'25 release, conversation_trace; "
                        "Apache-2.0)", 94174),
    "agents_dev": ("Coding agents", "agents_dev (kv-cache-tester by callanjfox; Apache-2.0)",
                   159546),
}
TIER_COLUMNS = [
    ("block_hit_percent", "hit %", 1), ("hbm_hit_percent", "HBM %", 1), ("h2d_per_1000", "H2D", 0),
    ("d2h_per_1000", "D2H", 0), ("nvme_reads_per_1000", "NVMe reads", 0),
    ("nvme_writes_per_1000", "NVMe writes", 0), ("nvme_writes_per_s", "writes a second", 1),
    ("time_saved_percent", "time saved %", 1), ("write_amplification", "amplification", 2)]


def rows_of(raw, name):
    with open(os.path.join(raw, name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def variants(raw, trace, first, prefix, text):
    """(policy's name with its variant, row) of each file RAW/TRACE.PREFIX-N.csv."""
    names = [name for name in os.listdir(raw) if name.startswith(f"{trace}.{prefix}-")]
    for name in sorted(names, key=lambda name: int(name.split("-")[-1].split(".")[0])):
        number = int(name.split("-")[-1].split(".")[0])
        for row in rows_of(raw, name):
            yield row["policy"] + (text.format(number) if number != first else ""), row


def one_tier(raw, trace):
    rows = [(row["policy"], row) for row in rows_of(raw, f"{trace}.one.csv")]
    rows += [("default, hints 80 % right", row) for row in rows_of(raw, f"{trace}.hints.csv")]
    return rows


def three_tiers(raw, trace):
    return [*variants(raw, trace, 0, "price", ", price {}"),
            *variants(raw, trace, None, "budget", ", budget {} a second"),
            *variants(raw, trace, None, "segments", ", price 4, segments of {}")]


def csv_write(path, rows):
    columns = ["run"] + [column for column in dict.fromkeys(
        column for _, row in rows for column in row) if column != "policy"]
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        out.writeheader()
        out.writerows({"run": run, **row} for run, row in rows)


def one_tier_table(rows):
    sizes = list(dict.fromkeys(row["capacity_percent"] for _, row in rows))
    yield "| policy | " + " | ".join(f"{float(size):g} %" for size in sizes) + " |"
    yield "|:--" + "|--:" * len(sizes) + "|"
    for run in dict.fromkeys(run for run, _ in rows):
        figures = [row["prefix_token_hit_percent"] for name, row in rows if name == run]
        yield f"| {run} | " + " | ".join(f"{float(figure):.1f}" for figure in figures) + " |"


def three_tiers_table(rows):
    yield "| policy | " + " | ".join(text for _, text, _ in TIER_COLUMNS) + " |"
    yield "|:--" + "|--:" * len(TIER_COLUMNS) + "|"
    for run, row in rows:
        figures = [f"{float(row[key]):.{digits}f}" if row.get(key) else ""
                   for key, _, digits in TIER_COLUMNS]
        yield f"| {run} | " + " | ".join(figures) + " |"


def page(raw, results):
    yield "# What the policies keep"
    yield ""
    yield ("Made by `make policies` (`bench/run-policies.sh`); `bench/README.md` says what is "
           "simulated. lru, s3fifo and default (GHI) are\nthe library's own; min knows the future.")
    for trace, (title, origin, unique) in TRACES.items():
        one, three = one_tier(raw, trace), three_tiers(raw, trace)
        csv_write(os.path.join(results, f"{trace}.csv"), one)
        csv_write(os.path.join(results, f"{trace}_tiers.csv"), three)
        yield ""
        yield f"## {title}: {origin}"
        yield ""
        yield (f"One tier, shares of its {unique:,} unique blocks: input tokens that hits make "
               "needless, %, whole trace, cold start.")
        yield ""
        yield from one_tier_table(one)
        if os.path.exists(os.path.join(results, f"{trace}.svg")):
            yield ""
            yield f"![hits over capacities]({trace}.svg)"
        yield ""
        yield ("Three tiers, HBM 1 %, HOST 5 %, NVMe 30 %; H2D, D2H, NVMe reads and writes for "
               "each 1,000 blocks asked for; the price of a write in\nms; a budget in blocks a "
               "second of the trace.")
        yield ""
        yield from three_tiers_table(three)


def main():
    raw, results = sys.argv[1:3]
    with open(os.path.join(results, "policies.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page(raw, results)) + "\n")


if __name__ == "__main__":
    main()
