#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_tierbench.py - tierbench's commands, small.

Usage: test_tierbench.py SOURCE-FOLDER BIN-FOLDER
"""
import json
import os
import signal
import subprocess

import programs
from programs import TRACE, Programs


def expected_hits(lines):
    """What a cache without limit hits: (leading blocks, tokens saved, blocks)."""
    seen, hits, saved, blocks = set(), 0, 0, 0
    for line in lines:
        request = json.loads(line)
        leading = 0
        for block in request["hash_ids"]:
            if block not in seen:
                break
            leading += 1
        seen.update(request["hash_ids"])
        hits += leading
        saved += min(leading * 512, request["input_length"])
        blocks += len(request["hash_ids"])
    return hits, saved, blocks


class Tierbench(Programs):
    def trace_lines(self, count):
        packed = subprocess.run(["zstd", "-dc", TRACE], cwd=self.scratch, capture_output=True,
                                check=True).stdout
        return packed.decode().splitlines()[:count]

    def test_every_resident_block_hits(self):
        hits, saved, blocks = expected_hits(self.trace_lines(150))
        report = json.loads(self.replay("r1", requests=150, nvme="512M", host="64M").stdout)
        self.assertEqual(report["blocks"], blocks)
        self.assertEqual(report["hit_host_blocks"] + report["hit_nvme_blocks"], hits)
        self.assertEqual(report["saved_tokens"], saved)
        self.assertEqual(report["read_blocks"], hits)
        self.assertEqual((report["wrong_bytes"], report["leased_miss_blocks"]), (0, 0))
        self.assertGreater(report["hit_nvme_blocks"], 0)
        self.assertEqual(report["acknowledged_blocks"], report["put_blocks"])
        self.assertEqual(report["counters"]["get_miss_count"], 0)

    def test_every_resident_block_hits_through_three_tiers(self):
        hits, saved, _ = expected_hits(self.trace_lines(300))
        for every in ("1", "3"):
            report = json.loads(self.replay(f"h1-{every}", "--hbm", "32M", "--device", "emulation",
                                            "--durability", "sync", "--durable-every", every,
                                            requests=300, nvme="1G", host="256M").stdout)
            tiers = [report[f"hit_{tier}_blocks"] for tier in ("hbm", "host", "nvme")]
            self.assertTrue(all(tiers), tiers)
            counters, paths = report["counters"], report["paths"]
            lost = counters["host_drop_count"] + counters["hbm_drop_count"]
            if lost == 0:  # A slow disk may not take all that moves down.
                self.assertEqual(sum(tiers), hits)
                self.assertEqual(report["saved_tokens"], saved)
            self.assertEqual(report["read_blocks"], sum(tiers))
            self.assertEqual((report["wrong_bytes"], report["leased_miss_blocks"],
                              report["put_refused_blocks"]), (0, 0, 0))
            self.assertEqual(report["hbm_device"], "emulation")
            self.assertEqual(counters["get_hbm_count"], report["hit_hbm_blocks"])
            self.assertEqual(paths["caller_to_hbm"]["bytes"], 65536 * report["put_blocks"])
            for tier in ("hbm", "host", "nvme"):
                self.assertEqual(paths[f"{tier}_to_caller"]["bytes"],
                                 65536 * report[f"hit_{tier}_blocks"])
            self.assertEqual(paths["caller_to_host"]["bytes"], 0)
            self.assertEqual(paths["hbm_to_host"]["bytes"] > 0, every == "3")
            self.assertEqual(report["latencies"]["get_hbm_ns"]["count"], counters["get_hbm_count"])
            if every == "1":
                self.assertEqual(report["acknowledged_blocks"], report["put_blocks"])
            else:
                self.assertGreater(report["put_blocks"], report["acknowledged_blocks"])
                self.assertGreater(report["acknowledged_blocks"], 0)

    def test_what_moved_down_by_itself_survives_sigkill(self):
        command = ["build/bin/tierbench", "replay", "--trace", TRACE, "--dir", "h2", "--hbm", "32M",
                   "--host", "32M", "--nvme", "1G", "--requests", "200", "--kill-at", "120",
                   "--durability", "memory", "--acks", "acks-h2", "--ceiling-seconds", "none",
                   "--json"]
        done = subprocess.run(command, cwd=self.scratch, stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        before = json.loads(done.stdout)
        self.assertEqual(before["acknowledged_blocks"], 0)
        self.assertGreater(before["shown_blocks"], 500)
        report = json.loads(self.replay("h2", "--hbm", "32M", "--resume-at", "120", "--verify-acks",
                                        "acks-h2", requests=200, nvme="1G", host="32M").stdout)
        self.assertEqual(report["verify"]["keys"], before["shown_blocks"])
        self.assertEqual(report["verify"]["lost_blocks"], 0)
        self.assertEqual(report["verify"]["wrong_bytes"], 0)
        self.assertEqual(self.json_of("kvtool", "check", "h2")["damaged"], 0)

    def test_a_plain_trace_is_the_same_trace(self):
        plain = self.write("plain.jsonl", "\n".join(self.trace_lines(10)))
        reports = []
        for trace, folder in ((TRACE, "r2a"), (plain, "r2b")):
            done = self.run_program("tierbench", "replay", "--trace", trace, "--dir", folder,
                                    "--host", "16M", "--nvme", "64M", "--requests", "10", "--json")
            report = json.loads(done.stdout)
            reports.append([report[key] for key in ("blocks", "saved_tokens", "put_blocks")])
        self.assertEqual(reports[0], reports[1])

    def test_each_durability_and_engine_replays(self):
        for durability in ("memory", "relaxed", "sync"):
            for engine in ("auto", "threads"):
                report = json.loads(self.replay(f"r3-{durability}-{engine}", "--durability",
                                                durability, "--io", engine).stdout)
                self.assertEqual(report["wrong_bytes"], 0)
                acknowledged = 0 if durability == "memory" else report["put_blocks"]
                self.assertEqual(report["acknowledged_blocks"], acknowledged)

    def test_odd_block_sizes_come_back(self):
        for size in ("1", "4095", "100001", "1M"):
            report = json.loads(self.replay(f"r4-{size}", "--block-bytes", size, requests=8,
                                            nvme="256M", host="64M").stdout)
            self.assertEqual(report["wrong_bytes"], 0)
            self.assertGreater(report["read_blocks"], 0)
            report = json.loads(self.replay(f"r4h-{size}", "--block-bytes", size, "--hbm", "96M",
                                            requests=8, nvme="256M", host="64M").stdout)
            self.assertEqual(report["wrong_bytes"], 0)
            self.assertGreater(report["hit_hbm_blocks"], 0)

    def test_what_was_acknowledged_survives_sigkill(self):
        read_end, write_end = os.pipe()
        command = ["build/bin/tierbench", "replay", "--trace", TRACE, "--dir", "r5", "--host",
                   "16M", "--nvme", "1G", "--requests", "200", "--kill-at", "120", "--durability",
                   "sync", "--ack-fd", str(write_end), "--ceiling-seconds", "none", "--json"]
        with subprocess.Popen(command, cwd=self.scratch, pass_fds=[write_end],
                              stdout=subprocess.PIPE) as child:
            os.close(write_end)
            with open(read_end, "rb") as pipe:
                acknowledged = pipe.read()
            report = json.loads(child.communicate(timeout=60)[0])
        self.assertEqual(child.returncode, -signal.SIGKILL)
        self.assertEqual(report["requests"], 120)
        with open(self.path("acks"), "wb") as file:
            file.write(acknowledged)
        count = len(set(acknowledged.split()))
        self.assertGreater(count, 500)
        report = json.loads(self.replay("r5", "--resume-at", "120", "--verify-acks", "acks",
                                        requests=200, nvme="1G", host="64M").stdout)
        self.assertEqual(report["verify"]["keys"], count)
        self.assertEqual(report["verify"]["lost_blocks"], 0)
        self.assertEqual(report["verify"]["wrong_bytes"], 0)
        self.assertEqual(report["verify"]["read_bytes"], count * 65536)
        self.assertEqual(report["first_request"], 120)
        self.assertEqual(report["requests"], 80)
        self.assertEqual(self.json_of("kvtool", "check", "r5")["damaged"], 0)

    def test_a_lost_block_is_reported(self):
        self.replay("r6", "--acks", "acks6", requests=5)
        with open(self.path("acks6"), encoding="ascii") as file:
            key = file.readline().strip()
        self.run_program("kvtool", "rm", "r6", f"replay/{key}")
        done = self.run_program("tierbench", "replay", "--verify-acks", "acks6", "--dir", "r6",
                                "--host", "16M", "--nvme", "64M", "--json", expect=1)
        self.assertEqual(json.loads(done.stdout)["verify"]["lost_blocks"], 1)

    def test_wrong_bytes_are_reported(self):
        self.replay("r7", "--acks", "acks7", requests=5)
        with open(self.path("acks7"), encoding="ascii") as file:
            key = file.readline().strip()
        self.run_program("kvtool", "get", "r7", f"replay/{key}", "-o", "block7")
        with open(self.path("block7"), "r+b") as file:
            file.seek(60000)
            file.write(b"wrong")
        self.run_program("kvtool", "put", "--replace", "r7", f"replay/{key}", "block7")
        done = self.run_program("tierbench", "replay", "--verify-acks", "acks7", "--dir", "r7",
                                "--host", "16M", "--nvme", "64M", "--json", expect=1)
        report = json.loads(done.stdout)["verify"]
        self.assertEqual(report["wrong_blocks"], 1)
        self.assertTrue(1 <= report["wrong_bytes"] <= 5)

    def test_tiers_can_be_shares_of_the_trace(self):
        report = json.loads(self.replay("r8", "--hbm", "2%", host="0.5%", nvme="5%",
                                        requests=3).stdout)
        unique_bytes = 94174 * 65536
        self.assertAlmostEqual(report["hbm_capacity_bytes"], unique_bytes * 0.02, delta=2 << 20)
        self.assertAlmostEqual(report["host_capacity_bytes"], unique_bytes * 0.005, delta=2 << 20)
        self.assertAlmostEqual(report["nvme_capacity_bytes"], unique_bytes * 0.05, delta=2 << 20)

    def test_a_replay_measures_its_ceilings(self):
        done = self.run_program("tierbench", "replay", "--trace", TRACE, "--dir", "r9",
                                "--requests", "20", "--host", "16M", "--nvme", "64M",
                                "--ceiling-seconds", "0.1", "--hbm", "16M", "--device",
                                "emulation", "--json")
        for name, of in (("host_to_nvme", "raw writes and fdatasync"),
                         ("caller_to_hbm", "host memcpy")):
            path = json.loads(done.stdout)["paths"][name]
            self.assertGreater(path["ceiling_bytes_per_s"], 0)
            self.assertAlmostEqual(path["ceiling_share"],
                                   path["bytes_per_s"] / path["ceiling_bytes_per_s"], places=3)
            self.assertEqual(path["ceiling"], of)

    def test_hostile_traces_are_refused_by_line(self):
        good = '{"input_length": 1024, "hash_ids": [1, 2]}'
        for number, line in enumerate(('{', '[]', 'x', '{"input_length": 1024}',
                                       '{"hash_ids": [1]}',
                                       '{"input_length": 512, "hash_ids": [1, 2]}',
                                       '{"input_length": 1024, "hash_ids": [-1]}',
                                       '{"input_length": 1024, "hash_ids": [1.5]}',
                                       '{"input_length": 1024, "hash_ids": [18446744073709551616]}',
                                       '{"input_length": 1024, "hash_ids": [1,]}',
                                       '{"input_length": 1024, "hash_ids": [1]} x',
                                       '{"input_length": 1024, "hash_ids": [1], "a": ' + "[" * 99,
                                       '{"input_length": 1024, "hash_ids": [1], "hash_ids": [2]}')):
            name = self.write(f"bad{number}.jsonl", f"{good}\n{good}\n{line}\n{good}\n")
            with self.subTest(line=line):
                self.refused("tierbench", "replay", "--trace", name, "--dir", "bad", "--host",
                             "16M", "--nvme", "64M", expect=1, saying="line 3:")
        for content in (b"", b"\n\n", b"\0" * 5000000, b"\x28\xb5\x2f\xfd" + b"\xff" * 1000):
            with open(self.path("bad.jsonl"), "wb") as file:
                file.write(content)
            self.refused("tierbench", "replay", "--trace", "bad.jsonl", "--dir", "bad", "--host",
                         "16M", "--nvme", "64M", expect=1, saying="bad.jsonl")
        self.assertFalse(os.path.exists(self.path("bad")))

    def test_bad_command_lines_are_named(self):
        replay = ["replay", "--trace", TRACE, "--dir", "no"]
        sizes = ["--host", "16M", "--nvme", "64M"]
        for words in ([], ["nothing"], ["replay"], replay, ["replay", "--dir", "no", *sizes],
                      [*replay, *sizes, "more"], [*replay, *sizes, "--policy", "magic"],
                      [*replay, *sizes, "--durability", "maybe"], [*replay, *sizes, "--io", "none"],
                      [*replay, *sizes, "--block-bytes", "0"],
                      [*replay, *sizes, "--block-bytes", "65M"],
                      [*replay, *sizes, "--block-bytes", "9223372036854775808"],
                      [*replay, *sizes, "--requests", "-1"], [*replay, *sizes, "--requests", "1e3"],
                      [*replay, *sizes, "--resume-at", "7000"], [*replay, *sizes, "--kill-at", "0"],
                      [*replay, *sizes, "--kill-at", "9", "--requests", "5"],
                      [*replay, *sizes, "--ack-fd", "99"], [*replay, *sizes, "--ack-fd", "x"],
                      [*replay, *sizes, "--ceiling-seconds", "0"], [*replay, *sizes, "--hbm", "x"],
                      [*replay, *sizes, "--hbm", "-1"], [*replay, *sizes, "--device", "cuda"],
                      [*replay, *sizes, "--hbm", "16M", "--device", "gpu"],
                      [*replay, *sizes, "--durable-every", "0"],
                      [*replay, *sizes, "--durable-every", "x"],
                      [*replay, "--host", "0", "--nvme", "64M"],
                      [*replay, "--host", "5%%", "--nvme", "64M"],
                      [*replay, "--host", "-5%", "--nvme", "64M"],
                      [*replay, "--host", "16M", "--nvme", "99999999999999999999"],
                      ["replay", "--verify-acks", "a", "--dir", "no", "--host", "5%", "--nvme",
                       "1G"], ["ceiling"], ["ceiling", "--dir"],
                      ["ceiling", "--dir", "c", "--file-bytes", "1"],
                      ["ceiling", "--dir", "c", "--seconds", "never"], ["sweep"],
                      ["sweep", "--dir", "s", "--depth", "0"],
                      ["sweep", "--dir", "s", "--depth", "1,"],
                      ["sweep", "--dir", "s", "--block-bytes", "128M"],
                      ["sweep", "--dir", "s", "--block-bytes", "64K,5000"],
                      ["sweep", "--dir", "s", "--store-bytes", "1M"], ["scale"],
                      ["scale", "--dir", "s", "--entries", "5"],
                      ["scale", "--dir", "s", "--block-bytes", "5000"],
                      ["scale", "--dir", "s", "--entries", "20000,"], ["engram"],
                      ["engram", "--dir", "s", "--rows", "5"],
                      ["engram", "--dir", "s", "--batch", "0"],
                      ["engram", "--dir", "s", "--step-ms", "0"],
                      ["engram", "--dir", "s", "--step-ms", "1", "--cache", "1K"],
                      ["engram", "--dir", "s", "--text", "x"],
                      ["engram", "--dir", "s", "--device", "gpu"],
                      ["engram", "--dir", "s", "--seconds", "x"], ["load", "LICENSE"],
                      ["load", "--dir", "s"], ["load", "LICENSE", "--dir", "s", "--chunk", "5000"],
                      ["load", "LICENSE", "--dir", "s", "--device", "tpu"],
                      ["load", "LICENSE", "--dir", "s", "--rounds", "0"], ["gpu"],
                      ["gpu", "--dir", "s", "--nvme", "64M"],
                      ["gpu", "--dir", "s", "--device", "tpu"]):
            with self.subTest(words=words):
                self.refused("tierbench", *words)
        self.refused("tierbench", *replay, *sizes, "--requests", "0", saying="--requests 0")

    def safetensors(self, name, offsets, size):
        """A file with two tensors of these offsets, and `size` bytes of data."""
        header = json.dumps({"__metadata__": {"format": "pt"}} | {
            f"t{i}": {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
            for i, (begin, end) in enumerate(offsets)}).encode()
        with open(self.path(name), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + os.urandom(size))
        return 8 + len(header)

    def test_a_file_is_loaded_and_its_timeline_shows_the_overlap(self):
        size = (5 << 20) + 77
        offset = self.safetensors("m.safetensors", [(0, 1 << 20), (1 << 20, size)], size)
        for more in ([], ["--memory", "2M"]):
            report = json.loads(self.run_program(
                "tierbench", "load", "m.safetensors", "--dir", "l1", "--device", "emulation",
                "--chunk", "1M", "--rounds", "2", "--seconds", "0.05", "--trace", "l1.json",
                "--json", *more).stdout)
            self.assertEqual((report["offset"], report["bytes"]), (offset, size))
            self.assertEqual((report["tensor_count"], report["tensor_bytes"]), (2, size))
            self.assertEqual((report["chunk_count"], report["wrong_bytes"]), (6, 0))
            self.assertTrue(report["is_emulated"] and report["is_safetensors"])
            for key in ("load_bytes_per_s", "disk_bytes_per_s", "copy_bytes_per_s"):
                self.assertGreater(report[key], 0)
            self.assertTrue(0 <= report["overlap"] <= 1)
            with open(self.path("l1.json"), encoding="utf-8") as file:
                spans = json.load(file)["traceEvents"]
            self.assertEqual(sorted(span["name"] for span in spans),
                             sorted(f"{kind} {i}" for kind in ("copy", "read") for i in range(6)))
            self.assertTrue(all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans))
            self.assertEqual(sum(span["args"]["bytes"] for span in spans), 2 * size)
        self.assertFalse(os.path.exists(self.path("l1", "load-store")))
        said = self.run_program("tierbench", "load", "LICENSE", "--dir", "l1", "--device",
                                "emulation", "--seconds", "0.05").stdout.decode()
        self.assertIn("emulated", said)
        self.assertIn("0 wrong bytes", said)

    def test_every_way_to_a_device_is_measured_and_takes_nothing_meanwhile(self):
        report = self.json_of("tierbench", "gpu", "--dir", "g1", "--device", "emulation", "--host",
                              "64M", "--nvme", "128M", "--pinned", "64M", "--seconds", "0.05")
        self.assertTrue(report["is_emulated"])
        self.assertEqual(report["wrong_bytes"], 0)
        for what in ("memory", "pin", "event"):
            self.assertEqual(report[f"steady_{what}_count"], 0)
        for key in ("host", "copy", "nvme", "disk", "load", "load_disk"):
            self.assertGreater(report[f"{key}_bytes_per_s"], 0)
        self.assertGreater(report["first_use_ns"], report["open_ns"])
        self.assertEqual(os.listdir(self.path("g1")), [])

    def test_what_cannot_be_loaded_is_said(self):
        self.safetensors("bad.safetensors", [(0, 4097)], 4096)
        self.write("empty", "")
        self.write("text.safetensors", "this is no header, but text")
        self.write("short.safetensors", "short")
        self.write("short", "less than a page")
        for name in ("bad.safetensors", "empty", "text.safetensors", "short.safetensors", "short",
                     "absent"):
            self.refused("tierbench", "load", name, "--dir", "l2", expect=1, saying=name)

    def test_a_timeline_that_cannot_be_written_costs_no_figures(self):
        load = ["tierbench", "load", "LICENSE", "--dir", "l3", "--device", "emulation", "--seconds",
                "0.05", "--trace"]
        self.refused(*load, "no/where", expect=1, saying="no/where")
        self.assertFalse(os.path.exists(self.path("l3")))
        done = self.refused(*load, "/dev/full", expect=1, saying="/dev/full")
        self.assertIn(b"0 wrong bytes", done.stdout)

    def test_hbm_can_be_none_and_a_gpu_that_is_not_there_is_said(self):
        report = json.loads(self.replay("r10", "--hbm", "0", requests=2).stdout)
        self.assertNotIn("hit_hbm_blocks", report)
        self.assertEqual(sorted(report["paths"]), ["caller_to_host", "host_to_caller",
                                                   "host_to_nvme", "nvme_to_caller"])
        if not os.path.exists("/dev/nvidiactl"):
            self.refused("tierbench", "replay", "--trace", TRACE, "--dir", "r10c", "--host", "16M",
                         "--nvme", "64M", "--hbm", "16M", "--device", "cuda", "--ceiling-seconds",
                         "none", expect=1, saying="KVT_E_UNSUPPORTED")

    def test_each_policy_replays(self):
        for policy in ("lru", "s3fifo"):
            report = json.loads(self.replay(f"r11-{policy}", "--policy", policy,
                                            requests=40).stdout)
            self.assertEqual(report["policy"], policy)
            self.assertEqual(report["wrong_bytes"], 0)
            self.assertGreater(report["counters"]["host_evict_count"] +
                               report["counters"]["host_demote_count"], 0)

    def test_impossible_work_fails_with_a_sentence(self):
        self.refused("tierbench", "replay", "--trace", "nowhere", "--dir", "no", "--host", "16M",
                     "--nvme", "64M", expect=1, saying="nowhere")
        self.refused("tierbench", "replay", "--trace", TRACE, "--dir", "no/where", "--host", "16M",
                     "--nvme", "64M", "--ceiling-seconds", "none", expect=1, saying="no/where")
        self.refused("tierbench", "replay", "--verify-acks", "LICENSE", "--dir", "no", "--host",
                     "16M", "--nvme", "64M", expect=1, saying="line 1")
        self.refused("tierbench", "ceiling", "--dir", "no/where", expect=1, saying="no/where")

    def test_ceiling_measures(self):
        report = self.json_of("tierbench", "ceiling", "--dir", "c1", "--file-bytes", "64M",
                              "--seconds", "0.03")
        for key, value in report.items():
            if key.endswith("_per_s"):
                self.assertGreater(value, 1e6, key)
        self.assertIn(report["read_1m_random_depth"], (1, 2, 4, 8, 16, 32, 64))
        self.assertEqual(os.listdir(self.path("c1")), [])

    def test_sweep_measures_beside_its_ceilings(self):
        report = self.json_of("tierbench", "sweep", "--dir", "w1", "--block-bytes", "1M", "--depth",
                              "1,8", "--store-bytes", "1G", "--seconds", "0.2")
        self.assertEqual(report["wrong_bytes"], 0)
        row = report["results"][0]
        self.assertEqual([read["depth"] for read in row["nvme_get"]], [1, 8])
        for name in ("put_first", "put_again", "nvme_get_best", "host_get"):
            self.assertGreater(row[f"{name}_bytes_per_s"], 1e6)
            self.assertGreater(row[f"{name}_ceiling_share"], 0)
        self.assertEqual((row["miss_blocks"], row["wrong_bytes"]), (0, 0))
        self.assertEqual(os.listdir(self.path("w1")), [])

    def test_scale_measures(self):
        report = self.json_of("tierbench", "scale", "--dir", "e1", "--entries",
                              "20000")["results"][0]
        self.assertGreaterEqual(report["entries"], 20000)
        self.assertGreater(report["lookup_found"], 990)
        self.assertGreater(report["reopen_clean_ns"], 0)
        self.assertGreater(report["reopen_killed_ns"], 0)
        self.assertEqual(os.listdir(self.path("e1")), [])

    def test_scale_keeps_the_largest_blocks_that_it_takes(self):
        report = self.json_of("tierbench", "scale", "--dir", "e3", "--entries", "1000",
                              "--block-bytes", "1M")["results"][0]
        self.assertEqual(report["lookup_found"], 1000)

    def test_engram_steps_measure(self):
        with open(self.path("text"), "w", encoding="ascii") as text:
            text.write("".join(f"row {i * i % 7919} of table {i % 3}, and {i % 101} more. "
                               for i in range(3000)))
        report = self.json_of("tierbench", "engram", "--dir", "g1", "--rows", "20000", "--batch",
                              "2", "--seconds", "0.05", "--step-ms", "2", "--cache", "1M",
                              "--text", "text")
        self.assertEqual(report["wrong_rows"], 0)
        self.assertIn("timed wait", report["compute"])
        self.assertEqual([(row["way"], row["tokens"], row["prefetched"])
                          for row in report["steps"]],
                         [(way, tokens, prefetched) for way in ("pinned", "nvme", "nvme_cache")
                          for tokens in ("uniform", "zipf", "text")
                          for prefetched in (False, True)])
        for row in report["steps"]:
            self.assertGreater(row["tokens_per_s"], 0)
            if row["way"] != "nvme_cache":
                self.assertEqual(row["pages_per_step"] > 0, row["way"] == "nvme")

    def test_what_is_refused_for_want_of_room_is_told(self):
        # Each request is a longer chain, whose lease in the end holds all of HOST.
        lines = [json.dumps({"input_length": 512 * count, "hash_ids": list(range(1, count + 1))})
                 for count in range(30, 90, 10)]
        trace = self.write("lease.jsonl", "\n".join(lines))
        for durability, expect in (("sync", 1), ("memory", 0)):
            done = self.run_program(
                "tierbench", "replay", "--trace", trace, "--dir", f"r12-{durability}", "--host",
                "2M", "--nvme", "64M", "--ceiling-seconds", "none", "--durability", durability,
                expect=expect)
            self.assertRegex(done.stdout.decode(), r"(?m)^reads refused +[1-9]")
            self.assertRegex(done.stdout.decode(), r"(?m)^puts refused +[1-9]")
            self.assertEqual(len(done.stderr.splitlines()), expect, done.stderr)
            if expect != 0:
                self.assertRegex(done.stderr.decode(), r"[1-9]\d* blocks refused or not made")

    def test_text_that_cannot_be_read_is_named(self):
        self.refused("tierbench", "engram", "--dir", "g3", "--rows", "10000", "--batch", "1",
                     "--seconds", "0.01", "--step-ms", "1", "--text", "build", expect=1,
                     saying="cannot read build: Is a directory")

    def test_engram_rows_go_to_a_device(self):
        with open(self.path("text"), "w", encoding="ascii") as text:
            text.write("".join(f"row {i * i % 7919} of table {i % 3}, and {i % 101} more. "
                               for i in range(3000)))
        report = self.json_of("tierbench", "engram", "--dir", "g2", "--rows", "20000", "--batch",
                              "2,8", "--seconds", "0.01", "--step-ms", "1", "--cache", "4M",
                              "--text", "text", "--device", "emulation")
        self.assertEqual((report["wrong_rows"], report["is_emulated"]), (0, True))
        self.assertIn("timed wait", report["device_compute"])
        self.assertEqual([(row["way"], row["tokens"], row["batch"], row["mode"])
                          for row in report["device_steps"]],
                         [(way, tokens, batch, mode)
                          for way in ("pinned_uva", "hbm", "nvme", "nvme_hbm_cache")
                          for tokens in ("uniform", "zipf", "text")
                          for batch in (2, 8)
                          for mode in ("alone", "synchronous", "prefetched")])
        for row in report["device_steps"]:
            self.assertAlmostEqual(row["rows_per_s"] / row["tokens_per_s"], 48, 3)
            self.assertEqual(row["compute_share"] > 0, row["mode"] != "alone")
            if row["way"] != "nvme_hbm_cache":
                self.assertEqual(row["pages_per_step"] > 0, row["way"] == "nvme")
                self.assertEqual(row["cache_sample_share"], 0)
        self.assertGreater(max(row["cache_sample_share"] for row in report["device_steps"]), 0)
        report = self.json_of("tierbench", "engram", "--dir", "g2", "--rows", "20000", "--batch",
                              "2", "--seconds", "0.05", "--device", "none")
        self.assertNotIn("device_steps", report)

    def test_a_store_that_scale_keeps_is_whole(self):
        self.json_of("tierbench", "scale", "--dir", "e2", "--entries", "1000,2000",
                     "--block-bytes", "16K", "--keep")
        self.assertEqual(os.listdir(self.path("e2")), ["scale-store"])
        found = self.json_of("kvtool", "check", "e2/scale-store")
        self.assertEqual((found["finding_count"], found["blocks"] >= 2000), (0, True))
        self.assertEqual(found["read_bytes"], found["blocks"] * 16384)


if __name__ == "__main__":
    programs.main()
