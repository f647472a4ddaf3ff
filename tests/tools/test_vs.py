#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_vs.py - kvtier beside its peers, small. Registered where tierbench-peers was built.

Usage: test_vs.py SOURCE-FOLDER BIN-FOLDER
"""
import csv
import json
import os

import programs
from programs import Programs

PEERS = ["kvtier", "rocksdb", "sqlite", "files", "files_cached"]
SMALL = ["--block-bytes", "64K", "--count", "32", "--rounds", "1", "--seconds", "0.005"]
# Who keeps checksums must refuse a damaged block; who does not hands it out, and it is noticed.
HAVE_CHECKSUMS = ["kvtier", "rocksdb"]


class Vs(Programs):
    def test_every_peer_moves_the_same_blocks_right(self):
        report = self.json_of("tierbench", "vs", "--dir", "v1", *SMALL, "--csv", "v1.csv")
        self.assertEqual((report["wrong_bytes"], report["refused_blocks"]), (0, 0))
        result = report["results"][0]
        self.assertEqual((result["block_bytes"], result["block_count"]), (65536, 32))
        self.assertEqual([peer["peer"] for peer in result["peers"]], PEERS)
        for peer in result["peers"]:
            self.assertGreaterEqual(peer["got_blocks"], 32 * 2 * len(peer["gets"]), peer)
            self.assertTrue(peer["version"] and peer["settings"])
            for point in peer["gets"]:
                self.assertGreater(point["bytes_per_s"], 1e5)
                self.assertGreaterEqual(point["cpu_ns"], 0)
            self.assertTrue(peer["is_cold"], peer)
            self.assertAlmostEqual(peer["get_best_ceiling_share"] * result["ceiling_bytes_per_s"] /
                                   peer["get_best_bytes_per_s"], 1, 3)
            self.assertIn(peer["get_best_threads"], [point["threads"] for point in peer["gets"]])
            self.assertEqual(peer["get_best_bytes_per_s"],
                             max(point["bytes_per_s"] for point in peer["gets"]))
        threads = {peer["peer"]: [point["threads"] for point in peer["gets"]]
                   for peer in result["peers"]}
        self.assertEqual((threads["rocksdb"], threads["files"]), ([1, 2, 4, 8, 16], [1, 8]))
        ratios = {ratio["ratio"]: ratio for ratio in result["ratios"]}
        self.assertEqual(sorted(ratios), sorted(f"get_{what}_to_{peer}" for what in ("rate", "cpu")
                                                for peer in PEERS[1:]))
        self.assertEqual((ratios["get_rate_to_rocksdb"]["bar"], ratios["get_cpu_to_files"]["bar"]),
                         (1.7, 0.2))
        ours, files = result["peers"][0], result["peers"][3]
        self.assertAlmostEqual(ratios["get_rate_to_files"]["value"] *
                               files["gets"][1]["bytes_per_s"] / ours["get_best_bytes_per_s"], 1, 3)
        with open(self.path("v1.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["block_bytes", "peer", "operation", "threads",
                                         "bytes_per_s", "cpu_ns", "read_bytes", "wrong_bytes",
                                         "refused_blocks"])
        self.assertEqual(len(rows), sum(len(peer["gets"]) + len(peer["puts"])
                                        for peer in result["peers"]))
        self.assertEqual(os.listdir(self.path("v1")), [])

    def test_damage_on_disk_is_noticed_for_every_peer(self):
        done = self.run_program("tierbench", "vs", "--dir", "v2", *SMALL, "--damage", "--json",
                                expect=1)
        report = json.loads(done.stdout)
        for peer in report["results"][0]["peers"]:
            name = peer["peer"]
            found = (peer["refused_blocks"] > 0, peer["wrong_bytes"] > 0)
            self.assertEqual(found, (name in HAVE_CHECKSUMS, name not in HAVE_CHECKSUMS), name)
        self.assertGreater(report["wrong_bytes"], 0)
        self.assertGreater(report["refused_blocks"], 0)

    def test_some_of_the_peers_can_be_asked_for(self):
        report = self.json_of("tierbench", "vs", "--dir", "v3", *SMALL, "--peers", "files,kvtier",
                              "--batch", "5")
        result = report["results"][0]
        self.assertEqual([peer["peer"] for peer in result["peers"]], ["kvtier", "files"])
        self.assertEqual(result["batch_blocks"], 5)
        self.assertEqual([ratio["ratio"] for ratio in result["ratios"]],
                         ["get_rate_to_files", "get_cpu_to_files"])

    def test_impossible_work_fails_with_a_sentence(self):
        self.refused("tierbench", "vs", "--dir", "no/where", *SMALL, expect=1, saying="no/where")
        self.refused("tierbench", "vs", "--dir", "v4", *SMALL, "--csv", "no/where", expect=1,
                     saying="no/where")


if __name__ == "__main__":
    programs.main()
