#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy_self_test.py - shows for every rule of tidy.py that a tree which breaks it is reported.

A small tree that keeps all rules is written, must give nothing, and is then broken once for each
case; the case's rule, and the file that breaks it, must be named.
"""
import os
import sys
import tempfile
import unittest

import tidy

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def c_file(name, body=""):
    return f"{SPDX}/*\n * {name} - a file of the test.\n */\n{body}"


def function(name, line_count):
    lines = "\n".join("    value++;" for _ in range(line_count - 2))
    return f"int\n{name}(int value)\n{{\n{lines}\n}}\n"


CONTRACT = """/*
 * kvt_go_submit - go.
 * Threads: any. Ownership: borrows. Blocks: never. Completion: once.
 */
KVT_CHECKED enum kvt_status kvt_go_submit(
    int value);
KVT_API void kvt_also(int value);
"""

GOOD = {
    "base/clock.h": c_file("clock.h"),
    "base/fs_host.c": c_file("fs_host.c", "int x = open(path, 0);\n"),
    "index/map.h": c_file("map.h"),
    "index/map.c": c_file("map.c", '#include "map.h"\n#include "clock.h"\n#include <lmdb.h>\n'),
    "tiers/tier.h": c_file("tier.h", '#include "clock.h"\n'),
    "tiers/io/ring.c": c_file("ring.c", '#include "tier.h"\n#include <liburing.h>\n'),
    "tiers/device/gpu.c": c_file("gpu.c", "#include <cuda_runtime_api.h>\n"),
    "engine/loop.h": c_file("loop.h"),
    "engine/loop.c": c_file("loop.c", '#include "map.h"\n#include "tier.h"\n/* free(x) */\n'
                            'const char *t = "malloc(1)";\nint y = ops->open(1);\n'
                            + function("loop_run", 70) + function("loop_long", 80)),
    "include/kvtier/kvtier.h": c_file("kvtier.h", CONTRACT),
    "tools/main.c": c_file("main.c", '#include "kvtier/kvtier.h"\nint z = printf("x");\n'),
    "bench/bench.c": c_file("bench.c", '#include "kvtier/kvtier.h"\n'),
    "bench/micro/micro_map.c": c_file("micro_map.c", '#include "map.h"\n#include "clock.h"\n'),
    "tests/unit/test_map.c": c_file("test_map.c", '#include "map.h"\n#include <lmdb.h>\n'),
    "tests/tidy/function_length.txt": "# listed\nengine/loop.c loop_long 80\n",
    "tests/run.sh": "#!/bin/sh\n# Runs.\n",
    "bench/sweep/sweep.c": c_file("sweep.c", '#include "kvtier/kvtier.h"\n'),
    "bench/sim/sim.c": c_file("sim.c", '#include "kvtier/kvtier.h"\n'),
    "bench/sim/sim_production.c": c_file("sim_production.c",
                                         '#include "loop.h"\n#include "map.h"\n'),
    "README.md": "See index/map.c, map.h and `kvtier/kvtier.h`; any *.c file.\n"
                 "```\ncc mine.c\n```\n",
    "Makefile": "all:\n\ttrue\n",
}

# rule, file, its new content (None: the good one with `added` behind it), added
CASES = [
    ("layering", "base/clock.h", '#include "tier.h"\n'),
    ("layering", "index/map.c", '#include "tier.h"\n'),
    ("layering", "tiers/tier.h", '#include "map.h"\n'),
    ("layering", "tiers/io/ring.c", '#include "loop.h"\n'),
    ("layering", "tiers/io/ring.c", "#include <lmdb.h>\n"),
    ("layering", "index/map.c", "#include <liburing.h>\n"),
    ("layering", "engine/loop.c", "#include <zstd.h>\n"),
    ("layering", "engine/loop.c", "#include <cuda_runtime.h>\n"),
    ("layering", "index/map.c", "#include <cuda_runtime_api.h>\n"),
    ("layering", "tools/main.c", "#include <cuda.h>\n"),
    ("layering", "base/clock.h", '#include "cuda_runtime_api.h"\n'),
    ("layering", "tools/main.c", '#include "loop.h"\n'),
    ("layering", "bench/sweep/sweep.c", '#include "map.h"\n'),
    ("layering", "bench/micro/micro_map.c", "#include <lmdb.h>\n"),
    ("layering", "bench/sim/sim.c", '#include "loop.h"\n'),
    ("layering", "bench/sim/sim_production.c", '#include "tier.h"\n'),
    ("layering", "include/kvtier/kvtier.h", '#include "clock.h"\n'),
    ("parent-include", "engine/loop.c", '#include "../base/clock.h"\n'),
    ("parent-include", "tests/unit/test_map.c", '#include "../../index/map.h"\n'),
    ("banned-call", "engine/loop.c", "void *m = malloc(4);\n"),
    ("banned-call", "index/map.c", "int f = open(path, 0);\n"),
    ("banned-call", "base/clock.h", "int f = fsync(3);\n"),
    ("banned-call", "tiers/tier.h", "int f = usleep(3);\n"),
    ("banned-call", "tools/main.c", "int f = system(text);\n"),
    ("banned-call", "tests/unit/test_map.c", "int f = atoi(text);\n"),
    ("banned-call", "base/fs_host.c", "char *f = strcpy(a, b);\n"),
    ("banned-call", "tiers/io/ring.c", "int f = pthread_cond_wait(&a, &b);\n"),
    ("file-length", "index/map.c", "int filler;\n" * 700),
    ("function-length", "index/map.c", function("map_long", 71)),
    ("function-length", "tests/tidy/function_length.txt", "index/map.c map_gone 90\n"),
    ("contract", "include/kvtier/kvtier.h", "\n/* Threads: any. */\nKVT_API void kvt_x(void);\n"),
    ("contract", "include/kvtier/kvtier.h",
     "\n/*\n * Threads: Ownership: Blocks:\n */\nKVT_API void kvt_x_submit(void);\n"),
    ("contract", "include/kvtier/kvtier.h", "\nKVT_API void kvt_bare(void);\n"),
    ("white-space", "tools/main.c", "\tint tab;\n"),
    ("white-space", "README.md", "end \n"),
    ("columns", "tools/main.c", "/* " + "x" * 100 + " */\n"),
    ("unfinished", "tools/main.c", "/* TO" + "DO: later */\n"),
    ("unfinished", "README.md", "FIX" + "ME\n"),
    ("named-file", "README.md", "See engine/gone.c.\n"),
]
WHOLE = [
    ("file-header", "tools/main.c", "int x;\n"),
    ("file-header", "tools/main.c", SPDX + "int x;\n"),
    ("file-header", "tools/main.c", c_file("other.c")),
    ("file-header", "tests/run.sh", "#!/bin/sh\ntrue\n"),
    ("unique-name", "tools/map.c", c_file("map.c")),
    ("function-length", "tests/tidy/function_length.txt", "engine/loop.c loop_long 81\n"),
]


def write_tree(root, files):
    for path, content in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(content)


def check(changes):
    with tempfile.TemporaryDirectory() as root:
        write_tree(root, {**GOOD, **changes})
        return [(rule, path) for path, _, rule, _ in tidy.violations(root)]


class TidySelfTest(unittest.TestCase):
    def test_a_tree_that_keeps_the_rules_is_silent(self):
        self.assertEqual(check({}), [])

    def test_every_breach_is_reported_by_its_rule(self):
        cases = [(r, p, GOOD[p] + added) for r, p, added in CASES] + WHOLE
        for rule, path, content in cases:
            with self.subTest(rule=rule, path=path, content=content[-60:]):
                self.assertIn((rule, path), check({path: content}))

    def test_a_listed_function_may_not_grow(self):
        found = check({"tests/tidy/function_length.txt": "engine/loop.c loop_long 79\n"})
        self.assertEqual(found, [("function-length", "engine/loop.c")])

    def test_every_rule_has_a_case(self):
        self.assertEqual({c[0] for c in CASES + WHOLE}, set(tidy.RULES))

    def test_a_tree_without_code_is_not_a_success(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertTrue(list(tidy.violations(root)))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
