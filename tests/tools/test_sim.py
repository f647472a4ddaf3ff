#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_sim.py - `tierbench sim`: its keys, what its options change, and what it refuses.

Usage: test_sim.py SOURCE PROGRAMS
"""
import json

import programs
from programs import TRACE

POLICIES = "lru s3fifo default lfu sieve arc gdsf 2q lfuda min".split()
COMMON = {"trace", "unique_blocks", "requests", "blocks", "input_tokens"}
ROW = {"policy", "capacity_blocks", "capacity_percent", "prefix_token_hit_percent",
       "block_hit_percent", "ns_per_access"}
TIERS = {"hbm_capacity_blocks", "host_capacity_blocks", "nvme_capacity_blocks", "hbm_hit_percent",
         "host_hit_percent", "nvme_hit_percent", "h2d_per_1000", "d2h_per_1000",
         "nvme_reads_per_1000", "nvme_writes_per_1000", "nvme_writes_per_s", "time_saved_percent"}


class Sim(programs.Programs):
    def sim(self, *words, trace=TRACE):
        return self.json_of("tierbench", "sim", "--trace", trace, *words)

    def requests(self, name, *requests):
        """A trace: (timestamp, input_length, ids) each."""
        lines = [json.dumps({"timestamp": at, "input_length": length, "hash_ids": ids})
                 for at, length, ids in requests]
        return self.write(name, "\n".join(lines) + "\n")

    def test_one_run_is_one_object(self):
        report = self.sim("--policy", "lru", "--capacity", "5%")
        self.assertEqual(set(report), COMMON | ROW)
        self.assertEqual((report["unique_blocks"], report["requests"], report["blocks"],
                          report["policy"], report["capacity_blocks"]),
                         (94174, 6015, 147000, "lru", 4709))
        self.assertAlmostEqual(report["prefix_token_hit_percent"], 11.2, delta=0.1)
        self.assertGreater(report["ns_per_access"], 0)

    def test_several_runs_are_an_array(self):
        report = self.sim("--policy", ",".join(POLICIES), "--capacity", "1%,1883")
        self.assertEqual(set(report), COMMON | {"results"})
        rows = report["results"]
        self.assertEqual([(row["policy"], row["capacity_blocks"]) for row in rows],
                         [(policy, blocks) for policy in POLICIES for blocks in (942, 1883)])
        for row in rows:
            self.assertEqual(set(row), ROW)
            self.assertLessEqual(row["block_hit_percent"], rows[-1]["block_hit_percent"])

    def test_tiers_have_their_own_figures(self):
        report = self.sim("--policy", "lru", "--tiers", "1%,5%,30%")
        self.assertEqual(set(report), COMMON | ROW | TIERS)
        self.assertAlmostEqual(report["block_hit_percent"],
                               sum(report[f"{tier}_hit_percent"] for tier in
                                   ("hbm", "host", "nvme")), places=3)
        self.assertAlmostEqual(report["d2h_per_1000"], 947, delta=20)
        report = self.sim("--policy", "lru", "--tiers", "1%,5%,30%", "--segment-blocks", "128")
        self.assertEqual(set(report), COMMON | ROW | TIERS | {"write_amplification"})
        self.assertGreater(report["write_amplification"], 1)

    def test_a_price_of_writes_saves_writes(self):
        writes = [self.sim("--policy", "default", "--tiers", "1%,5%,30%", *words)
                  ["nvme_writes_per_1000"]
                  for words in ((), ("--write-price", "8"), ("--write-budget", "5"))]
        self.assertLess(writes[1], 0.8 * writes[0])
        self.assertLess(writes[2], 0.8 * writes[0])

    def test_hints_help_the_policy_that_reads_them(self):
        for policy, gains in (("default", True), ("lru", False)):
            hits = [self.sim("--policy", policy, "--capacity", "5%", *words)
                    ["prefix_token_hit_percent"] for words in ((), ("--hint-accuracy", "1"))]
            self.assertEqual(hits[1] > hits[0] + 1, gains)
        # Wrong in a fifth of the requests, they are worth more than any policy.
        wrong = self.sim("--policy", "default", "--capacity", "10%", "--hint-accuracy", "0.8")
        self.assertAlmostEqual(wrong["prefix_token_hit_percent"], 27.7, delta=0.5)

    def test_figures_but_the_time_are_the_same_each_time(self):
        texts = []
        for name in ("a.csv", "b.csv"):
            self.run_program("tierbench", "sim", "--trace", TRACE, "--policy", "default,arc",
                             "--capacity", "2%,4%", "--hint-accuracy", "0.8", "--csv", name)
            with open(self.path(name), encoding="utf-8") as file:
                texts.append(file.read())
        self.assertEqual(texts[0], texts[1])
        lines = texts[0].splitlines()
        self.assertEqual(lines[0], "policy,capacity_blocks,capacity_percent,"
                         "prefix_token_hit_percent,block_hit_percent")
        self.assertEqual(len(lines), 5)
        self.assertTrue(lines[1].startswith("default,1883,2.0000,"))

    def test_requests_are_taken_in_the_order_of_their_times(self):
        a, b = [1, 2], [3, 4]
        trace = self.requests("order.jsonl", (2000, 1024, a), (1000, 1024, b), (3000, 1024, a))
        report = self.sim("--policy", "lru", "--capacity", "2", trace=trace)
        self.assertAlmostEqual(report["block_hit_percent"], 100 * 2 / 6, places=3)

    def test_counting_can_begin_later(self):
        trace = self.requests("late.jsonl", (0, 1024, [1, 2]), (1, 1024, [1, 2]))
        report = self.sim("--policy", "lru", "--capacity", "2", "--score-from", "1", trace=trace)
        self.assertEqual((report["requests"], report["blocks"], report["block_hit_percent"]),
                         (1, 2, 100))
        self.refused("tierbench", "sim", "--trace", trace, "--policy", "lru", "--capacity", "2",
                     "--score-from", "2", saying="none of 2 requests")

    def test_blocks_can_have_other_sizes_and_the_last_one_lack_tokens(self):
        trace = self.requests("small.jsonl", (0, 40, [1, 2, 3]), (1, 40, [1, 2, 3]))
        report = self.sim("--policy", "lru", "--capacity", "3", "--block-tokens", "16",
                          trace=trace)
        self.assertEqual((report["input_tokens"], report["prefix_token_hit_percent"]), (80, 50))
        self.refused("tierbench", "sim", "--trace", trace, "--policy", "lru", "--capacity", "3",
                     expect=1, saying="line 1:")

    def test_a_table_is_printed_without_json(self):
        text = self.run_program("tierbench", "sim", "--trace", TRACE, "--policy", "lru,min",
                                "--tiers", "1%,5%,30%").stdout.decode()
        self.assertIn("94174 unique blocks", text)
        self.assertRegex(text, r"(?m)^policy +blocks .*time %")
        self.assertRegex(text, r"(?m)^min +33903 ")

    def test_bad_command_lines_are_named(self):
        base = ["sim", "--trace", TRACE]
        lru = [*base, "--policy", "lru"]
        one = [*lru, "--capacity", "5%"]
        three = [*lru, "--tiers", "1%,5%,30%"]
        for words in (["sim"], base, lru, [*base, "--capacity", "5%"], [*one, "more"],
                      [*base, "--policy", "magic", "--capacity", "5%"],
                      [*base, "--policy", "lru,", "--capacity", "5%"],
                      [*base, "--policy", "lru,lru", "--capacity", "5%"],
                      [*lru, "--capacity", "0"], [*lru, "--capacity", "-5%"],
                      [*lru, "--capacity", "5%,"], [*lru, "--capacity", "99999999999"],
                      [*lru, "--capacity", ",".join(["1%"] * 17)],
                      [*lru, "--tiers", "1%,5%"], [*lru, "--tiers", "1%,5%,30%,40%"],
                      [*lru, "--tiers", "1%,5%,x"], [*one, "--tiers", "1%,5%,30%"],
                      [*one, "--write-price", "4"], [*one, "--write-budget", "4"],
                      [*one, "--segment-blocks", "4"], [*three, "--write-price", "-1"],
                      [*three, "--write-budget", "0"], [*three, "--segment-blocks", "0"],
                      [*three, "--segment-blocks", "28252"], [*three, "--plot", "p"],
                      [*one, "--score-from", "6015"], [*one, "--score-from", "-1"],
                      [*one, "--block-tokens", "0"], [*one, "--hint-accuracy", "1.5"],
                      [*one, "--hint-accuracy", "often"]):
            with self.subTest(words=words):
                self.refused("tierbench", *words)

    def test_traces_that_cannot_be_are_refused(self):
        words = ["--policy", "lru", "--capacity", "5"]
        for name, requests in (("two-parents", ((0, 1024, [1, 2]), (1, 1024, [3, 2]))),
                               ("twice-in-one", ((0, 1024, [1, 1]),)),
                               ("a-year", ((0, 512, [1]), (10 ** 15, 512, [1])))):
            trace = self.requests(f"{name}.jsonl", *requests)
            with self.subTest(name=name):
                self.refused("tierbench", "sim", "--trace", trace, *words, expect=1,
                             saying=f"{name}.jsonl")
        self.refused("tierbench", "sim", "--trace", "nowhere", *words, expect=1, saying="nowhere")
        self.refused("tierbench", "sim", "--trace", TRACE, *words, "--csv", "no/where", expect=1,
                     saying="no/where")


if __name__ == "__main__":
    programs.main()
