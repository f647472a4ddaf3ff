#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results_csv.py - turns the JSON of one run of run-bench.sh into CSV files, and prints the bars.

Usage: results_csv.py RUN-FOLDER RESULTS-FOLDER ROUNDS FACTS. One line a figure: the facts
of the run (commit, build, machine, kernel), the figure's name, block size, value, ceiling, share.
"""
import csv
import json
import os
import statistics
import sys


def load(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def fio_rates(folder, rounds):
    """Median of the rounds by piece, in bytes per second."""
    rates = {}
    for number in range(1, rounds + 1):
        with open(os.path.join(folder, f"fio.{number}"), encoding="utf-8") as file:
            for line in file:
                piece, rate, _ = line.split()
                rates.setdefault({"1m": 1 << 20, "64k": 64 << 10}[piece], []).append(int(rate))
    return {piece: statistics.median(values) for piece, values in rates.items()}


def sweep_rows(folder, rounds, fio):
    """(name, block bytes, value, ceiling) as medians over the rounds."""
    sweeps = [load(folder, f"sweep.{number}.json") for number in range(1, rounds + 1)]
    for index, first in enumerate(sweeps[0]["results"]):
        size = first["block_bytes"]

        def middle(key, at=index):
            return statistics.median(sweep["results"][at][key] for sweep in sweeps)

        for name in ("put_first", "put_again", "nvme_get_best", "host_get"):
            ceiling = middle(f"{name}_ceiling_bytes_per_s")
            if name == "nvme_get_best":
                ceiling = max(ceiling, fio.get(size, 0))
            yield f"{name}_bytes_per_s", size, middle(f"{name}_bytes_per_s"), ceiling
        yield "lookup_1000_p50_ns", size, middle("lookup_1000_p50_ns"), None
        yield "lookup_1000_p99_ns", size, middle("lookup_1000_p99_ns"), None


def flat_rows(values):
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, "", value, None


def scale_rows(report):
    """The figures of each number of entries, by their name and that number."""
    for row in report["results"]:
        for name, _, value, ceiling in flat_rows(row):
            yield f"{name} at {row['entries']}", "", value, ceiling


def write(path, facts, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["commit", "build", "machine", "kernel", "figure", "block_bytes", "value",
                      "ceiling", "share"])
        for name, size, value, ceiling in rows:
            share = f"{value / ceiling:.3f}" if ceiling else ""
            out.writerow(facts + [name, size, f"{value:.6g}", f"{ceiling:.6g}" if ceiling else "",
                                  share])
            print(f"{name:28} {size!s:>8} {value:14.6g} {share}")


def main():
    folder, results, rounds, facts = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    facts = facts.split(",")
    fio = fio_rates(folder, rounds)
    rows = list(sweep_rows(folder, rounds, fio))
    rows += [("fio_read_bytes_per_s", size, rate, None) for size, rate in sorted(fio.items())]
    write(os.path.join(results, "sweep.csv"), facts, rows)
    write(os.path.join(results, "ceiling.csv"), facts, flat_rows(load(folder, "ceiling.json")))
    write(os.path.join(results, "scale.csv"), facts, scale_rows(load(folder, "scale.json")))
    if os.path.exists(os.path.join(folder, "kvtool.json")):
        write(os.path.join(results, "kvtool.csv"), facts, flat_rows(load(folder, "kvtool.json")))


if __name__ == "__main__":
    main()
