#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_page.py - one page of HTML from what a run of run-bench.sh has left in its folder.

Usage: bench_page.py RUN-FOLDER. Writes RUN-FOLDER/index.html: the machine, tables with shares of
ceilings, and the pictures that lie beside it. No scripts, nothing from a network. What a run has
not measured is left out, and said so.
"""
import glob
import html
import json
import os
import platform
import subprocess
import sys

STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 66em; padding: 0 1em; color: #222; }
h1, h2 { font-weight: 600; }
h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; }
pre { background: #f6f6f6; padding: .8em; overflow-x: auto; }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>kvtier: measured</title>
<style>{style}</style>
</head>
<body>
<h1>kvtier: measured</h1>
{body}
</body>
</html>
"""


def output_of(*words):
    """The first line that a program prints; empty when it is not there."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else ""


def field_of(path, name):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return ""


def mount_of(folder):
    """Device, kind and options of the file system that a folder lies on."""
    best = ("", "")
    path = os.path.realpath(folder)
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            device, place, kind, options = line.split()[:4]
            inside = path == place or path.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best[0]):
                best = (place, f"{kind} on {device}, {options}")
    return best[1]


def machine_rows(folder):
    memory = int(field_of("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)
    cpu = field_of("/proc/cpuinfo", "model name") or platform.machine()
    yield "CPU", f"{os.cpu_count()} × {cpu}"
    yield "memory", f"{memory:.1f} GiB"
    yield "kernel", platform.release()
    yield "file system", mount_of(folder)
    with open("/proc/loadavg", encoding="utf-8") as file:
        yield "load at the end", " ".join(file.read().split()[:3])
    yield "kvtier", output_of("build/bin/tierbench", "--version")
    yield "commit", output_of("git", "rev-parse", "--short=12", "HEAD")
    yield "compiler", output_of("cc", "--version")
    yield "fio", output_of("fio", "--version")
    for name in ("lmdb", "liburing", "libxxhash", "rocksdb", "sqlite3"):
        yield name, output_of("pkg-config", "--modversion", name)


def rate(value):
    return f"{value / 1e9:.2f} GB/s" if value >= 1e9 else f"{value / 1e6:.0f} MB/s"


def time_of(nanoseconds):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def size_of(count):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count:g} B"


def table(columns, rows):
    def cells(row, kind):
        return "".join(f"<{kind}>{html.escape(str(cell))}</{kind}>" for cell in row)

    lines = ["<table>"]
    if columns:
        lines.append(f"<thead><tr>{cells(columns, 'th')}</tr></thead>")
    lines.append("<tbody>")
    lines += [f"<tr>{cells(row, 'td')}</tr>" for row in rows]
    return "\n".join([*lines, "</tbody>", "</table>"])


def section(title, *parts):
    return "\n".join([f"<h2>{html.escape(title)}</h2>", *[part for part in parts if part]])


def text(words):
    return f"<p>{html.escape(words)}</p>"


def picture(folder, name, says):
    if not os.path.exists(os.path.join(folder, name)):
        return ""
    return f'<p><img src="{html.escape(name)}" alt="{html.escape(says)}"></p>'


def load(folder, pattern):
    """The JSON files whose names fit, in order."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        with open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    return found


def ceiling_part(folder):
    for report in load(folder, "ceiling.json"):
        rows = [(f"read, {piece}, {order}", rate(report[f"read_{key}_{order}_bytes_per_s"]),
                 report[f"read_{key}_{order}_depth"])
                for key, piece in (("1m", "1 MiB"), ("64k", "64 KiB"))
                for order in ("random", "sequential")
                if f"read_{key}_{order}_bytes_per_s" in report]
        rows += [(name, rate(report[key]), "") for name, key in (
            ("write 8 MiB + fdatasync, first time", "write_first_bytes_per_s"),
            ("write 8 MiB + fdatasync, again", "write_again_bytes_per_s"),
            ("memcpy, one core", "memcpy_bytes_per_s"),
            ("XXH3-128, one core", "xxh3_128_bytes_per_s"))]
        yield section("The machine without a store", table(("", "rate", "best depth"), rows),
                      picture(folder, "ceiling.svg", "Rate of reads over their depth"))


def sweep_part(folder):
    reports = load(folder, "sweep*.json")
    rows = []
    for number, report in enumerate(reports, 1):
        for row in report["results"]:
            for name, words in (("put_first", "durable put, first fill"),
                                ("put_again", "durable put, recycled"),
                                ("nvme_get_best", "get from NVMe"), ("host_get", "get from HOST")):
                rows.append((f"{size_of(row['block_bytes'])}: {words}", number,
                             rate(row[f"{name}_bytes_per_s"]),
                             rate(row[f"{name}_ceiling_bytes_per_s"]),
                             f"{row[f'{name}_ceiling_share']:.3f}"))
    if rows:
        yield section("kvtier beside its ceilings",
                      text("Each figure in turns with its ceiling, five rounds, medians; gets and "
                           "their ceiling each at the best depth."),
                      table(("", "run", "kvtier", "ceiling", "share"), sorted(rows)),
                      picture(folder, "sweep.svg", "Share of the ceiling over depth"))


def peers_rows(result):
    """A line for each peer; the share is of raw reads of pieces of that size in the same rounds."""
    for peer in result["peers"]:
        best = peer["get_best_bytes_per_s"]
        share = peer.get("get_best_ceiling_share")
        yield (peer["peer"], rate(best), f"{share:.2f}" if share else "",
               peer["get_best_threads"], time_of(peer["get_best_cpu_ns"]),
               size_of(round(peer["get_best_read_bytes"])), rate(peer["put_best_bytes_per_s"]),
               peer["put_best_threads"], peer["wrong_bytes"], peer["refused_blocks"])


def ratios_table(result):
    lines = []
    for ratio in result["ratios"]:
        bar = ""
        if "bar" in ratio:
            bound = "at most" if "_cpu_" in ratio["ratio"] else "at least"
            bar = f"{bound} {ratio['bar']:g}: {'reached' if ratio['is_reached'] else 'missed'}"
        lines.append((ratio["ratio"].replace("_", " "), f"{ratio['value']:.3f}", bar))
    return table(("kvtier to the other", "", "bar"), lines)


def vs_part(folder):
    for report in load(folder, "vs.json"):
        parts = []
        for result in report["results"]:
            parts.append(f"<h3>Blocks of {size_of(result['block_bytes'])}</h3>")
            parts.append(table(("", "get", "of the ceiling", "threads", "CPU of a get",
                                "read for a get", "durable put", "threads", "wrong bytes",
                                "refused"),
                               peers_rows(result)))
            parts.append(ratios_table(result))
        for peer in report["results"][0]["peers"] if report["results"] else []:
            parts.append(text(f"{peer['peer']} {peer['version']}: {peer['settings']}."))
        yield section("kvtier beside others",
                      text("The same durable puts and cold gets in random order on the same file "
                           "system, in turns, medians; each at its best number of threads. The "
                           "ceiling: raw reads of kvtier's data file in the same rounds."),
                      picture(folder, "vs.svg", "Rate and CPU of cold gets, by peer"), *parts)


def scale_part(folder):
    for report in load(folder, "scale.json"):
        rows = [(f"{row['entries']:,}", f"{row['entry_memory_bytes']:.0f} B",
                 time_of(row["lookup_1000_p50_ns"]), time_of(row["lookup_1000_p99_ns"]),
                 f"{row['put_per_s']:,.0f} /s", time_of(row["reopen_clean_ns"]),
                 time_of(row["reopen_killed_ns"])) for row in report["results"]]
        yield section("Few and many blocks",
                      table((f"blocks of {report['block_bytes'] // 1024} KiB", "memory of one",
                             "lookup of 1,000, p50", "p99", "durable puts",
                             "open after a close", "after SIGKILL"), rows),
                      picture(folder, "scale.svg", "Memory, puts, lookups and opening by size"))


def replay_part(folder):
    for report in load(folder, "replay.json"):
        rows = [(name.replace("_", " "), size_of(path["bytes"]), rate(path["bytes_per_s"]),
                 rate(path["ceiling_bytes_per_s"]) if "ceiling_share" in path else "",
                 f"{path['ceiling_share']:.3f}" if "ceiling_share" in path else "")
                for name, path in report["paths"].items()]
        yield section("A recorded trace",
                      text(f"{report['requests']:,} requests, {report['blocks']:,} accesses of "
                           f"blocks, {report['hit_percent']:.1f} % of them hits, "
                           f"{report['wrong_bytes']} wrong bytes. One caller with one request at a "
                           "time: its paths wait for each other."),
                      table(("path", "bytes", "rate", "ceiling", "share"), rows),
                      picture(folder, "replay.svg", "Rates of the paths beside their ceilings"))


def micro_part(folder):
    for path in sorted(glob.glob(os.path.join(folder, "micro_*.txt"))):
        with open(path, encoding="utf-8") as file:
            name = os.path.splitext(os.path.basename(path))[0]
            yield section(name, f"<pre>{html.escape(file.read())}</pre>")


PARTS = {
    "ceiling": ceiling_part,
    "sweep": sweep_part,
    "vs": vs_part,
    "scale": scale_part,
    "replay": replay_part,
    "micro": micro_part,
}


def page_of(folder):
    rows = [(name, value) for name, value in machine_rows(folder) if value]
    body = [section("The machine", table((), rows))]
    missing = []
    for name, part in PARTS.items():
        found = list(part(folder))
        body += found
        if not found:
            missing.append(name)
    if missing:
        body.append(text(f"Not measured in this run: {', '.join(missing)}."))
    return PAGE.format(style=STYLE, body="\n".join(body))


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
        file.write(page_of(folder))


if __name__ == "__main__":
    main()
