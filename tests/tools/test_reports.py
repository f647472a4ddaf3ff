#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_reports.py - the files that tierbench writes beside its report, and `make bench`'s page.

Usage: test_reports.py SOURCE-FOLDER BIN-FOLDER. Nothing here needs gnuplot or the libraries of
others: test_plots.py and test_vs.py do.
"""
import csv
import html.parser
import json
import os
import shutil
import subprocess
import sys

import programs
from programs import TRACE, Programs

CEILING = ["ceiling", "--dir", "c", "--file-bytes", "16M", "--seconds", "0.001"]
VOID = {"meta", "img", "br", "link", "hr"}


class Page(html.parser.HTMLParser):
    """Whether each element is closed in its turn, and which pictures it names."""

    def __init__(self):
        super().__init__()
        self.open, self.pictures, self.tags, self.faults = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        facts = dict(attrs)
        if tag == "img":
            self.pictures.append(facts.get("src", ""))
            if not facts.get("alt"):
                self.faults.append("a picture without words")
        if any(name.startswith("on") for name in facts):
            self.faults.append("a script")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed out of turn")


def vs_report():
    """What `tierbench vs --json` prints, made up."""
    point = {"threads": 2, "bytes_per_s": 2e9, "cpu_ns": 9000.0, "read_bytes": 65536.0}
    peer = {"peer": "kvtier", "version": "1", "settings": "<fast> & safe", "puts": [point],
            "gets": [point], "is_cold": True, "got_blocks": 9, "wrong_bytes": 0,
            "wrong_blocks": 0, "refused_blocks": 0, "get_best_read_bytes": 65536.0}
    for move in ("put", "get"):
        for name, key in (("threads", "threads"), ("bytes_per_s", "bytes_per_s"),
                          ("cpu_ns", "cpu_ns")):
            peer[f"{move}_best_{name}"] = point[key]
    ratio = {"ratio": "get_cpu_to_rocksdb", "value": 0.3, "bar": 0.2, "is_reached": False}
    return {"dir": "x", "rounds": 1, "seconds": 1, "wrong_bytes": 0, "refused_blocks": 0,
            "results": [{"block_bytes": 65536, "block_count": 9, "batch_blocks": 4, "lap_blocks": 9,
                         "peers": [peer], "ratios": [ratio]}]}


class Reports(Programs):
    reports = {}  # What was measured, once for all tests.

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.reports = {
            "ceiling": self.json_of("tierbench", *CEILING, "--csv", "c.csv"),
            "scale": self.json_of("tierbench", "scale", "--dir", "e", "--entries", "1000,3000",
                                  "--csv", "e.csv"),
            "replay": json.loads(self.replay("r", "--csv", "r.csv", requests=3).stdout),
        }

    def rows(self, name):
        with open(self.path(name), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_csv_has_the_figures_of_the_json(self):
        report = self.reports["ceiling"]
        rows = self.rows("c.csv")
        self.assertEqual(list(rows[0]), ["figure", "piece_bytes", "depth", "bytes_per_s"])
        self.assertEqual(len(rows), len(report["points"]) + 4)
        self.assertEqual(float(rows[0]["bytes_per_s"]), report["points"][0]["bytes_per_s"])

        report = self.reports["scale"]
        rows = self.rows("e.csv")
        self.assertEqual(list(rows[0]), [
            "block_bytes", "entries", "entry_memory_bytes", "lookup_1000_p50_ns",
            "lookup_1000_p99_ns", "reopen_clean_ns", "reopen_killed_ns", "put_per_s"])
        self.assertEqual([int(row["entries"]) for row in rows],
                         [row["entries"] for row in report["results"]])
        for asked, row in zip((1000, 3000), report["results"]):
            self.assertGreaterEqual(row["entries"], asked)
            self.assertLess(row["entries"], asked * 1.1)
        self.assertEqual((report["block_bytes"], rows[0]["block_bytes"]), (4096, "4096"))
        self.assertEqual(os.listdir(self.path("e")), [])

        rows = self.rows("r.csv")
        self.assertEqual(list(rows[0]), ["path", "bytes", "busy_ns", "bytes_per_s",
                                         "ceiling_bytes_per_s", "ceiling_share"])
        self.assertEqual({row["path"]: int(row["bytes"]) for row in rows},
                         {name: path["bytes"]
                          for name, path in self.reports["replay"]["paths"].items()})

    def test_what_cannot_be_written_is_said_before_anything_is_measured(self):
        self.refused("tierbench", *CEILING, "--csv", "no/where.csv", expect=1, saying="no/where")
        self.refused("tierbench", "scale", "--dir", "x1", "--csv", "no/where", expect=1)
        self.refused("tierbench", "sweep", "--dir", "x1", "--csv", "no/where", expect=1)
        self.refused("tierbench", "replay", "--trace", TRACE, "--dir", "x1", "--host", "16M",
                     "--nvme", "64M", "--csv", "no/where", expect=1)
        self.assertFalse(os.path.exists(self.path("x1")))

    def test_a_missing_gnuplot_is_named(self):
        self.refused("tierbench", *CEILING, "--plot", "c.svg", expect=1, saying="gnuplot-nox",
                     env={"PATH": self.path("nowhere")})
        self.assertFalse(os.path.exists(self.path("c.svg")))

    def gnuplot(self, folder, script):
        """The environment in which `gnuplot` is that shell script."""
        os.makedirs(self.path(folder))
        self.write(os.path.join(folder, "gnuplot"), f"#!/bin/sh\n{script}\n")
        os.chmod(self.path(folder, "gnuplot"), 0o755)
        return {**os.environ, "PATH": f"{self.path(folder)}:{os.environ['PATH']}"}

    def test_a_picture_that_was_cut_off_is_a_failure_and_no_file(self):
        # As gnuplot does on a disk that is full: what it wrote has no end, and its exit code is 0.
        env = self.gnuplot("cut", 'cat >/dev/null; printf "<svg><g></"')
        done = self.refused("tierbench", *CEILING, "--plot", "cut.svg", expect=1, env=env,
                            saying="cut.svg")
        self.assertIn(b"memcpy", done.stdout)
        self.assertFalse(os.path.exists(self.path("cut.svg")))

    def test_what_is_no_file_is_not_removed_for_a_picture_that_failed(self):
        env = self.gnuplot("broken", '[ -z "$(cat)" ]')
        os.mkfifo(self.path("pipe"))
        with open(self.path("pipe"), "r+b", buffering=0):
            self.refused("tierbench", *CEILING, "--plot", "pipe", expect=1, env=env)
        self.assertTrue(os.path.exists(self.path("pipe")))

    def test_a_trace_cannot_give_commands_by_its_name(self):
        env = self.gnuplot("recording", f"cat >>{self.path('recorded')}; echo '</svg>'")
        name = "`touch commanded` 'and' \"quotes\".jsonl.zst"
        shutil.copy(self.path(TRACE), self.path(name))
        self.run_program("tierbench", "sim", "--trace", name, "--policy", "lru", "--capacity", "5%",
                         "--plot", "named", env=env)
        with open(self.path("recorded"), encoding="utf-8") as file:
            titles = [line for line in file if line.startswith("set title ")]
        # Between single quotes gnuplot runs nothing, and the name cannot end them.
        self.assertEqual(titles, ["set title '`touch commanded` : tokens that hits make needless'"
                                  " noenhanced\n"])

    def test_missing_peers_are_named_by_their_packages(self):
        os.makedirs(self.path("alone"))
        program = shutil.copy(os.path.join(self.programs, "tierbench"), self.path("alone"))
        done = subprocess.run([program, "vs", "--dir", "x2"], cwd=self.scratch, timeout=60,
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"librocksdb-dev and libsqlite3-dev", done.stderr)

    def test_vs_names_bad_arguments(self):
        for words in ([], ["--block-bytes", "1000"], ["--block-bytes", "32M"],
                      ["--block-bytes", "64K,"], ["--bytes", "1"], ["--count", "3"],
                      ["--count", "20", "--bytes", "1G"], ["--batch", "0"], ["--batch", "1025"],
                      ["--seconds", "0"], ["--rounds", "0"], ["--rounds", "16"],
                      ["--peers", "kvtier,leveldb"], ["--peers", ""], ["more"]):
            with self.subTest(words=words):
                place = ["--dir", "x3"] if words else []
                self.refused("tierbench", "vs", *place, *words,
                             saying=words[0] if words and words[0] != "more" else "")
        self.assertFalse(os.path.exists(self.path("x3")))

    def page(self, folder):
        subprocess.run([sys.executable, "-B", os.path.join(self.source, "bench", "bench_page.py"),
                        folder], cwd=self.scratch, check=True, timeout=60)
        with open(self.path(folder, "index.html"), encoding="utf-8") as file:
            words = file.read()
        page = Page()
        page.feed(words)
        page.close()
        self.assertEqual((page.faults, page.open), ([], []))
        self.assertTrue(words.startswith("<!DOCTYPE html>"))
        for needless in ("<script", "http://", "https://", "@import"):
            self.assertNotIn(needless, words)
        for picture in page.pictures:
            self.assertTrue(os.path.exists(self.path(folder, picture)), picture)
        return words, page

    def times(self, bin_folder, store, expect=0):
        done = subprocess.run([sys.executable, "-B",
                               os.path.join(self.source, "bench", "kvtool_times.py"), bin_folder,
                               store, "1"], cwd=self.scratch, timeout=60, capture_output=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def test_the_times_of_kvtool_are_taken_or_it_is_said_why_not(self):
        self.run_program("tierbench", "scale", "--dir", "t", "--entries", "1000", "--keep")
        medians = json.loads(self.times("build/bin", "t/scale-store").stdout)
        self.assertGreaterEqual(medians["blocks"], 1000)
        for name in ("stat_seconds", "ls_first_line_seconds", "check_share"):
            self.assertGreater(medians[name], 0)
        os.makedirs(self.path("fake"))
        self.write("fake/kvtool", '#!/bin/sh\n[ "$1" = stat ] && echo {}\n')
        os.chmod(self.path("fake", "kvtool"), 0o755)
        done = self.times("fake", "t/scale-store", expect=1)
        self.assertIn(b"kvtool ls t/scale-store failed", done.stderr)

    def test_the_page_of_a_run_is_whole(self):
        os.makedirs(self.path("page"))
        reports = {
            **self.reports,
            "vs": vs_report(),
            "sweep.1": {"results": [{"block_bytes": 65536, **{
                f"{name}_{key}": 0.5 for name in
                ("put_first", "put_again", "nvme_get_best", "host_get")
                for key in ("bytes_per_s", "ceiling_bytes_per_s", "ceiling_share")}}]},
        }
        for name, report in reports.items():
            with open(self.path("page", f"{name}.json"), "w", encoding="utf-8") as file:
                json.dump(report, file)
        for name in ("ceiling", "vs"):
            with open(self.path("page", f"{name}.svg"), "w", encoding="utf-8") as file:
                file.write("<svg/>")
        with open(self.path("page", "micro_ops.txt"), "w", encoding="utf-8") as file:
            file.write("a < b\n")
        words, page = self.page("page")
        self.assertEqual(sorted(page.pictures), ["ceiling.svg", "vs.svg"])
        self.assertGreaterEqual(page.tags.count("table"), 6)
        for needed in ("memory", "kernel", "file system", "&lt;fast&gt; &amp; safe", "a &lt; b",
                       "at most 0.2: missed"):
            self.assertIn(needed, words)
        self.assertNotIn("Not measured", words)

    def test_the_page_says_what_was_not_measured(self):
        os.makedirs(self.path("empty"))
        words, _ = self.page("empty")
        self.assertIn("Not measured in this run: ceiling, sweep, vs, scale, replay, micro.", words)


if __name__ == "__main__":
    programs.main()
