#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random_mutants.py - random single-line errors in format, commit, recovery and slot-reuse code.

Usage: random_mutants.py [--count N] [--seed N] [--minutes N] [--only NUMBER...]. Mutant n of a seed
is always the same. Each is built in the scratch tree of run_mutants.py and its family of tests is
run, cheapest first, until one fails: then it is killed. Who survives is built with the address
sanitizer, and meets those of the tests that `make test` runs with it. One that does not compile is
not counted, nor is one whose objects are the same as without it. Results are kept in
build/mutants/random-SEED.csv, so that a run which was stopped goes on; a result counts as long as
the mutated line is the same. At the end: the share that was killed (the bar is 90 %), and who
survived.
"""
import argparse
import csv
import glob
import hashlib
import os
import random
import re
import subprocess
import sys
import time

import run_mutants as tree

BAR = 90.0
# Files by family, and the tests of a family, cheapest first. They run in order until one fails.
ENGINE = "test_store_life test_recover test_full_arrays test_reclaim test_relocate " \
         "test_rewritten test_statuses test_bad_store test_shares test_pins test_delete " \
         "test_capacity test_full_map test_open_refused test_inspection " \
         "test_failed_batches test_strays test_strays_free test_rebuilt_owing " \
         "test_evicted test_rebuilt test_rebuilt_dead test_later_version test_sequences " \
         "test_epochs test_doomed " \
         "test_read_only test_kill_queue test_kills_kept test_vain_kills test_poisoned " \
         "test_poisoned_reads test_demotions test_flush test_put_anew test_replace_short " \
         "test_roots test_index_pages test_relocate_healed test_relocate_wrong " \
         "test_room_waits test_shares_reclaim test_write_budget test_wrong_disk " \
         "test_namespace_count model_store model_tiers sim_lives damage_stores crash_replace " \
         "crash_delete crash_recycle crash_rebuild_delete crash_rebuild_replace " \
         "crash_mixed fault_alloc fault_io"
FAMILIES = {
    "format": ("base/block_record.c tiers/batch_header.c tiers/store_file.c tiers/names_file.c "
               "tiers/copy_pair.c tiers/image.c index/segment_facts.c",
               "test_block_record test_batch_header test_store_file test_names_file test_image "
               "test_imaging golden_test golden_decode fuzz_block_record fuzz_batch_header "
               "fuzz_names_file fuzz_store_file test_parts test_store_life test_open_refused "
               "test_later_version damage_stores"),
    "index": ("index/lmdb_check.c index/lmdb_tree.c index/lmdb_page.c index/lmdb_reader.c "
              "index/lmdb_file.c index/lmdb_transaction.c",
              "test_lmdb_check test_lmdb_rules conform_index model_index test_index_failures "
              "test_index_pages test_index_space test_recover damage_stores fuzz_lmdb_check "
              "crash_put_sync crash_map_growth"),
    "segments": ("tiers/segment.c tiers/nvme_scan.c tiers/nvme_put.c tiers/nvme_files.c "
                 "tiers/slab.c",
                 "test_segment test_slab test_nvme_scan test_nvme_failures test_nvme_recycle "
                 "test_nvme_files conform_tier sim_nvme " + ENGINE),
    "commit": ("engine/commit.c engine/commit_batch.c engine/commit_group.c "
               "engine/commit_kills.c engine/committer.c", ENGINE),
    "recovery": ("engine/recover.c engine/rebuild.c engine/rebuild_scan.c "
                 "engine/rebuild_choose.c engine/strays.c engine/recover_table.c",
                 "test_recover_table " + ENGINE),
    "reuse": ("engine/reclaim.c engine/relocate.c engine/victim.c engine/victim_scan.c "
              "engine/block_facts.c", "test_victim " + ENGINE),
}
# Finer errors than those of mutants.txt take more seeds.
SEEDS = {"damage_stores": "400", "test_lmdb_check": "1000"}
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.*)(\)(?: \{)?)$")
STATEMENT = re.compile(r"^\s+(?!\w+ \*?\w+;|return|break|continue|goto|case|static|const|struct|"
                       r"enum|uint|int |bool|size_t|char|KVT_ASSERT|\})[\w(*&>\-.\[\]]+.*;$")
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
COMPARE = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ",
           " != ": " == "}
SIGNS = {" + 1": "", " - 1": "", " + ": " - ", " - ": " + ", " && ": " || ", " || ": " && "}


def negate(line, rng):
    del rng
    found = CONDITION.match(line)
    return f"{found[1]}!({found[2]}){found[3]}" if found else None


def compare(line, rng):
    found = [(m.start(), old) for old in COMPARE for m in re.finditer(re.escape(old), line)]
    if not found:
        return None
    at, old = rng.choice(found)
    return line[:at] + COMPARE[old] + line[at + len(old):]


def sign(line, rng):
    found = [(m.start(), old) for old in SIGNS for m in re.finditer(re.escape(old), line)]
    if not found:
        return None
    at, old = rng.choice(found)
    return line[:at] + SIGNS[old] + line[at + len(old):]


def number(line, rng):
    found = list(NUMBER.finditer(line))
    if not found or "failure_set" in line or '"' in line:
        return None
    chosen = rng.choice(found)
    new = int(chosen[1]) + rng.choice([1, -1]) if int(chosen[1]) > 0 else 1
    return line[:chosen.start()] + str(new) + line[chosen.end():]


def drop(line, rng):
    del rng
    if not STATEMENT.match(line) or line.count("(") != line.count(")"):
        return None
    return re.match(r"\s*", line)[0] + ";"


OPERATORS = {"negate": negate, "compare": compare, "sign": sign, "number": number, "drop": drop}
# What only speaks, counts or asserts is no error of the store.
IDLE = re.compile(r"failure_set|log_line|COUNT\(|KVT_ASSERT|KVT_E_\w+, 0,|^\s*(/?\*|#|\")|"
                  r"static_assert")
SPEECH = re.compile(r"failure_set\(|log_line\(")


def code_lines(path):
    """Numbers of lines inside functions, without comments."""
    is_body, is_comment, is_speech = False, False, False
    lines = tree.read(os.path.join(tree.ROOT, path)).decode().split("\n")
    for n, line in enumerate(lines):
        if line == "{":
            is_body = True
        elif line.startswith("}"):
            is_body = False
        starts = line.strip().startswith("/*")
        is_idle = is_speech or IDLE.search(line) or "log_line(" in "".join(lines[n + 1:n + 2])
        is_speech = (is_speech or SPEECH.search(line)) and not line.endswith(";")
        if is_body and not is_comment and not starts and not is_idle and line.strip():
            yield n, line
        if "/*" in line or is_comment:
            is_comment = "*/" not in line[line.find("/*") + 2 if "/*" in line else 0:]


def is_whole(lines, n):
    """The line is a statement or a condition by itself, not the middle of one."""
    before = lines.get(n - 1, "{").rstrip()
    return before.endswith((";", "{", "}", ":", ")")) or before.strip() == ""


def all_mutants():
    """Every mutant there could be: (family, file, line number, operator, old, how)."""
    for family, (files, _) in FAMILIES.items():
        for path in files.split():
            lines = dict(code_lines(path))
            for n, line in lines.items():
                for name, change in OPERATORS.items():
                    if name in ("drop", "negate") and not is_whole(lines, n):
                        continue
                    if change(line, random.Random(0)) is not None:
                        yield family, path, n, name, line


def chosen_mutants(seed, count):
    """`count` of them; a family's share is that of its code."""
    found = list(all_mutants())
    rng = random.Random(seed)
    rng.shuffle(found)
    for i, (family, path, n, name, line) in enumerate(found[:count]):
        yield i, family, path, n, name, line, OPERATORS[name](line, random.Random(seed * 1000 + i))


def digest(path, n, new):
    return hashlib.sha256(f"{path}:{n}:{new}".encode()).hexdigest()[:16]


def mutate(path, n, new):
    full = os.path.join(tree.TREE, path)
    lines = tree.read(full).decode().split("\n")
    lines[n] = new
    with open(full, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def object_of(path):
    layer = path.split("/", maxsplit=1)[0]
    found = glob.glob(os.path.join(tree.TREE, "build", "CMakeFiles", layer + ".dir", path + ".o"))
    if not found:
        return b""
    return subprocess.run(["objdump", "-d", "-r", "--no-show-raw-insn", found[0]], check=False,
                          capture_output=True).stdout


def dies_sanitized(log, path, tests):
    """The test that fails with the address sanitizer, and only with the mutant; None."""
    folder = os.path.join("build", "asan")
    tests = [test for test in tests if not re.match("crash_|sim_|fault_io", test)]
    tree.COUNTS["KVT_TEST_SEEDS"] = "12"
    if tree.run(log, "cmake", "--preset", "asan") != 0 or not tree.build(log, tests, folder):
        sys.exit(f"does not build with the sanitizer: {log}")
    for test in tests:
        if tree.passes(log, [test], folder):
            continue
        undo(path)
        is_green = tree.build(log, [test], folder) and tree.passes(log, [test], folder)
        return test + " (asan)" if is_green else None
    return None


def undo(path):
    tree.shutil.copyfile(os.path.join(tree.ROOT, path), os.path.join(tree.TREE, path))


def judge(path, n, new, tests, whole):
    """Returns (verdict, which test)."""
    log = tree.fresh_log("random")
    mutate(path, n, new)
    try:
        for i in range(0, len(tests), 6):
            some = tests[i:i + 6]
            if not tree.build(log, some):
                return "invalid", "does not build"
            if i == 0 and object_of(path) == whole:
                return "invalid", "the same code"
            for test in some:
                tree.COUNTS["KVT_TEST_SEEDS"] = SEEDS.get(test, "40")
                if not tree.passes(log, [test]):
                    return "killed", test
        test = dies_sanitized(log, path, tests)
        return ("SURVIVED", "") if test is None else ("killed", test)
    finally:
        undo(path)


def known_results(path):
    if not os.path.exists(path):
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        return {row[0]: row for row in csv.reader(file)}


def summary(rows):
    verdicts = [row[1] for row in rows]
    killed, survived = verdicts.count("killed"), verdicts.count("SURVIVED")
    for row in rows:
        if row[1] == "SURVIVED":
            print(f"SURVIVED {row[3]}:{row[4]} {row[5]}")
            print(f"  - {row[6].strip()}\n  + {row[7].strip()}")
    share = 100.0 * killed / max(1, killed + survived)
    print(f"{killed} of {killed + survived} killed: {share:.1f} % (the bar is {BAR} %); "
          f"{verdicts.count('invalid')} were no mutants")
    return 0 if share >= BAR else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--only", type=int, nargs="*")
    arguments = parser.parse_args()
    os.makedirs(tree.LOGS, exist_ok=True)
    os.makedirs(tree.TREE, exist_ok=True)
    tree.sync()
    results = os.path.join(tree.ROOT, "build", "mutants", f"random-{arguments.seed}.csv")
    known = known_results(results)
    end = time.monotonic() + 60 * arguments.minutes
    every = sorted({test for _, tests in FAMILIES.values() for test in tests.split()})
    red = tree.red_without_mutants(every) if not known else set()
    if red:
        sys.exit("red without a mutant: " + " ".join(sorted(red)))
    rows, counted, objects = [], 0, {}
    for i, family, path, n, name, old, new in chosen_mutants(arguments.seed, 4 * arguments.count):
        if arguments.only is not None and i not in arguments.only:
            continue
        if counted >= arguments.count or time.monotonic() > end:
            break
        key = digest(path, n, new)
        row = known.get(key) if arguments.only is None else None
        if row is None:
            if path not in objects:
                tree.build(tree.fresh_log("random"), ["test_store_life"])
                objects[path] = object_of(path)
            begin = time.monotonic()
            verdict, test = judge(path, n, new, FAMILIES[family][1].split(), objects[path])
            row = [key, verdict, test, path, n + 1, name, old, new]
            print(f"{i:4} {verdict:8} {path}:{n + 1} {name} {test} "
                  f"{time.monotonic() - begin:.0f} s", flush=True)
            with open(results, "a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow(row)
        rows.append(row)
        counted += row[1] != "invalid"
    return summary(rows)


if __name__ == "__main__":
    sys.exit(main())
