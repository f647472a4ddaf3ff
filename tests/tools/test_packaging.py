#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_packaging.py - what `make install` installs is found and used by a foreign program, and goes
away with `make uninstall`.

Usage: test_packaging.py SOURCE-FOLDER BUILD-FOLDER CC LIBDIR. Two installs: one straight to its
prefix, one through DESTDIR, whose tree is moved elsewhere before anyone uses it.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# A foreign program: it keeps a block, reads it back and compares.
PROGRAM = r"""
#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h>
#include <stdio.h>
#include <string.h>

static void must(enum kvt_status status, const char *what)
{
    if (status != KVT_OK) {
        fprintf(stderr, "%s: %d\n", what, (int)status);
        _Exit(1);
    }
}

int main(int count, char **words)
{
    static char kept[100000], copy[100000];
    if (count != 2)
        return 2;
    memset(kept, 42, sizeof(kept));
    struct kvt_options options = KVT_OPTIONS_INIT;
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    kvt_store *store;
    kvt_namespace ns;
    kvt_ticket *ticket;
    struct kvt_result result;
    must(kvt_open(words[1], &options, &store), "open");
    must(kvt_namespace_open(store, "foreign", "f", 1, &ns), "namespace");
    struct kvt_put put = {
        .key = {.bytes = "key", .length = 3}, .source = kept, .length = sizeof(kept)};
    must(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), "put");
    must(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), "wait");
    must(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1), "results");
    must(result.status, "put's result");
    kvt_ticket_free(ticket);
    struct kvt_get get = {.key = put.key, .destination = copy, .capacity = sizeof(copy)};
    must(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), "get");
    must(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), "wait");
    must(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), "results");
    must(result.status, "get's result");
    kvt_ticket_free(ticket);
    must(kvt_close(store), "close");
    if (result.length != sizeof(kept) || memcmp(kept, copy, sizeof(kept)) != 0)
        return 1;
    puts("the same bytes");
    return 0;
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(foreign LANGUAGES C)
find_package(kvtier 0.1 REQUIRED COMPONENTS shared static)
add_executable(foreign_shared foreign.c)
target_link_libraries(foreign_shared PRIVATE kvtier::kvtier)
add_executable(foreign_static foreign.c)
target_link_libraries(foreign_static PRIVATE kvtier::static)
"""

# Without a language CMake asks no compiler, and all is decided before kvtier's files want one.
LOOK = """
cmake_minimum_required(VERSION 3.25)
project(look LANGUAGES NONE)
find_package(kvtier %s)
if(NOT TARGET kvtier::kvtier)
  message(FATAL_ERROR "no kvtier::kvtier")
endif()
if(TARGET kvtier::static)
  message(FATAL_ERROR "there is a kvtier::static")
endif()
"""


class Packaging(unittest.TestCase):
    source = build = compiler = libdir = ""

    @classmethod
    def setUpClass(cls):
        parent = os.path.join(cls.build, "tests")
        os.makedirs(parent, exist_ok=True)
        cls.scratch = tempfile.mkdtemp(prefix="packaging.", dir=parent)
        cls.direct = os.path.join(cls.scratch, "direct")
        # Neither of these is ours: uninstall leaves them alone.
        os.makedirs(os.path.join(cls.direct, "share", "empty"))
        os.makedirs(os.path.join(cls.direct, "include"))
        cls.write(os.path.join(cls.direct, "include", "other.h"), "")
        cls.make("install", f"PREFIX={cls.direct}")
        os.rename(os.path.join(cls.scratch, "installed.txt"),
                  os.path.join(cls.scratch, "direct.txt"))
        stage = os.path.join(cls.scratch, "stage")
        cls.make("install", "PREFIX=/opt/kvtier", f"DESTDIR={stage}")
        cls.staged = os.listdir(stage) + os.listdir(os.path.join(stage, "opt"))
        cls.moved = os.path.join(cls.scratch, "moved")
        os.rename(os.path.join(stage, "opt", "kvtier"), cls.moved)
        cls.write(os.path.join(cls.scratch, "foreign.c"), PROGRAM)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch, ignore_errors=True)

    @classmethod
    def write(cls, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def must(cls, *command, **more):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}\n"
                                 f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    @classmethod
    def make(cls, target, *words):
        """The rule of the Makefile, without building anything before."""
        own = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "DESTDIR", "PREFIX")}
        cls.must("make", "-C", cls.source, "-o", "all", target, f"BUILD={cls.build}",
                 f"INSTALLED={os.path.join(cls.scratch, 'installed.txt')}", *words, env=own)

    @staticmethod
    def files_below(folder):
        return sorted(os.path.relpath(os.path.join(where, name), folder)
                      for where, _, names in os.walk(folder) for name in names)

    def flags(self, prefix, *words):
        own = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, self.libdir, "pkgconfig"))
        return self.must("pkg-config", *words, "--cflags", "--libs", "kvtier", env=own).split()

    def compile(self, name, *flags):
        program = os.path.join(self.scratch, name)
        self.must(self.compiler, "-std=c17", "-Wall", "-Wextra", "-Werror",
                  os.path.join(self.scratch, "foreign.c"), "-o", program, *flags)
        return program

    def runs(self, program, libraries=""):
        own = dict(os.environ, LD_LIBRARY_PATH=libraries)
        store = os.path.join(self.scratch, os.path.basename(program) + ".store")
        self.assertEqual(self.must(program, store, env=own), "the same bytes\n")

    def needs_shared(self, program):
        return "[libkvtier.so.0.1]" in self.must("readelf", "-d", program)

    def test_pkg_config_finds_the_shared_library(self):
        for prefix in (self.direct, self.moved):
            flags = self.flags(prefix)
            # What the library needs itself is no business of its users.
            self.assertEqual([flag for flag in flags if flag.startswith("-l")], ["-lkvtier"])
            program = self.compile("shared-" + os.path.basename(prefix), *flags)
            self.assertTrue(self.needs_shared(program))
            self.runs(program, os.path.join(prefix, self.libdir))

    def test_pkg_config_finds_the_static_library(self):
        # Not -static: Debian's libxxhash.a lacks the functions that choose by processor.
        flags = self.flags(self.moved, "--static")
        for library in "lmdb", "uring", "sodium", "xxhash", "zstd":
            self.assertIn(f"-l{library}", flags)
        flags = ["-l:libkvtier.a" if flag == "-lkvtier" else flag for flag in flags]
        program = self.compile("static", *flags)
        self.assertFalse(self.needs_shared(program))
        self.runs(program)

    def configure(self, project, prefix, **more):
        folder = tempfile.mkdtemp(prefix="project.", dir=self.scratch)
        self.write(os.path.join(folder, "CMakeLists.txt"), project)
        shutil.copy(os.path.join(self.scratch, "foreign.c"), folder)
        done = subprocess.run(
            ["cmake", "-G", "Ninja", "-S", folder, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_C_COMPILER={self.compiler}", "--no-warn-unused-cli"],
            capture_output=True, text=True, timeout=120, **more)
        return folder, done

    def test_find_package_finds_both_libraries(self):
        folder, done = self.configure(PROJECT, self.moved)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.must("cmake", "--build", folder)
        for name, is_shared in (("foreign_shared", True), ("foreign_static", False)):
            program = os.path.join(folder, name)
            self.assertEqual(self.needs_shared(program), is_shared)
            self.runs(program)

    def test_find_package_says_what_the_static_library_misses(self):
        without = dict(os.environ, PKG_CONFIG_LIBDIR=self.scratch, PKG_CONFIG_PATH="")
        done = self.configure(LOOK % "0.1 REQUIRED", self.moved, env=without)[1]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("kvtier::static needs what is not found: lmdb (by pkg-config), liburing",
                      done.stdout)
        done = self.configure(LOOK % "0.1 REQUIRED COMPONENTS static", self.moved, env=without)[1]
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("kvtier::static needs what is not found: lmdb", " ".join(done.stderr.split()))

    def test_find_package_refuses_another_minor_version(self):
        for version in ("0.0", "0.2", "1.0"):
            done = self.configure(LOOK % f"{version} REQUIRED", self.moved)[1]
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("version: 0.1.0", done.stderr)

    def test_the_shared_library_exports_what_the_headers_declare(self):
        folder = os.path.join(self.moved, "include", "kvtier")
        declared = set()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                declared |= set(re.findall(
                    r"^(?:KVT_API|KVT_CHECKED)\b[^;(]*\b(kvt_\w+)\(", file.read(), re.M))
        library = os.path.join(self.moved, self.libdir, "libkvtier.so")
        self.assertEqual(os.readlink(library), "libkvtier.so.0.1")
        self.assertIn("Library soname: [libkvtier.so.0.1]", self.must("readelf", "-d", library))
        lines = self.must("nm", "-D", "--defined-only", library).splitlines()
        exported = {line.split()[-1] for line in lines}
        self.assertGreater(len(declared), 60)
        self.assertEqual(exported, {"KVTIER_0"} | {name + "@@KVTIER_0" for name in declared})

    def test_everything_is_installed_in_its_place(self):
        self.assertEqual(self.staged, ["opt", "kvtier"])
        files = self.files_below(self.moved)
        headers = os.listdir(os.path.join(self.source, "include", "kvtier"))
        package = self.libdir + "/cmake/kvtier/"
        library = self.libdir + "/libkvtier."
        expected = [f"include/kvtier/{name}" for name in headers]
        expected += ["bin/kvtool", "bin/tierbench", "share/man/man1/kvtool.1",
                     "share/man/man1/tierbench.1", "share/doc/kvtier/LICENSE",
                     "share/doc/kvtier/README.md", "share/doc/kvtier/CHANGELOG.md",
                     library + "a", library + "so", library + "so.0.1", library + "so.0.1.0",
                     self.libdir + "/pkgconfig/kvtier.pc",
                     package + "kvtierConfig.cmake", package + "kvtierConfigVersion.cmake"]
        # It is built where its libraries are.
        if os.path.exists(os.path.join(self.build, "bin", "tierbench-peers")):
            expected.append("bin/tierbench-peers")
        # A file more for each library and kind of build: kvtierShared-release.cmake.
        made = [name for name in files
                if re.fullmatch(re.escape(package) + r"kvtier(Shared|Static)(-\w+)?\.cmake", name)]
        self.assertEqual(len(made), 4)
        self.assertEqual(files, sorted(expected + made))
        self.must(os.path.join(self.moved, "bin", "kvtool"), "--version")

    def test_no_installed_file_names_the_folders_that_it_came_from(self):
        for name in self.files_below(self.moved):
            with open(os.path.join(self.moved, name), "rb") as file:
                content = file.read()
            for folder in {self.source, self.build, self.scratch}:
                self.assertNotIn(folder.encode() + b"/", content, name)
                self.assertNotIn(folder.encode() + b"\0", content, name)

    def test_uninstall_leaves_what_is_not_ours_and_nothing_else(self):
        # The other tests look at this prefix too: a copy takes its place.
        kept = self.direct + ".kept"
        shutil.copytree(self.direct, kept, symlinks=True)
        shutil.copy(os.path.join(self.scratch, "direct.txt"),
                    os.path.join(self.scratch, "installed.txt"))
        self.make("uninstall")
        left = sorted(os.path.relpath(os.path.join(where, name), self.direct)
                      for where, folders, names in os.walk(self.direct) for name in folders + names)
        shutil.rmtree(self.direct)
        os.rename(kept, self.direct)
        self.assertEqual(left, ["include", "include/other.h", "share", "share/empty"])
        with self.assertRaisesRegex(AssertionError, "nothing was installed from here"):
            self.make("uninstall")

    def test_a_prefix_may_have_spaces(self):
        prefix = os.path.join(self.scratch, "a prefix")
        self.make("install", f"PREFIX={prefix}")
        self.must(os.path.join(prefix, "bin", "kvtool"), "--version")
        self.make("uninstall")
        self.assertEqual(os.listdir(prefix), [])

    def test_uninstall_empties_a_stage(self):
        stage = os.path.join(self.scratch, "stage.uninstall")
        self.make("install", "PREFIX=/opt/kvtier", f"DESTDIR={stage}")
        self.make("uninstall", f"DESTDIR={stage}")
        self.assertEqual(os.listdir(os.path.join(stage, "opt", "kvtier")), [])


if __name__ == "__main__":
    Packaging.source = os.path.abspath(sys.argv[1])
    Packaging.build = os.path.abspath(sys.argv[2])
    Packaging.compiler, Packaging.libdir = sys.argv[3:5]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
