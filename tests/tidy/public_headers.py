#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""public_headers.py - the public headers can be used from C and C++, and name nobody else's types.

Usage: public_headers.py INCLUDE CC CXX. Compiles each header of INCLUDE/kvtier alone as C11, C17,
C++11 and C++17 without a warning, uses the macro that a caller's own code has, does both with the
other compilers that are here, and looks for what a caller would need another project's headers for.
Then it breaks copies of one header on purpose: each break must be reported. Exit code 1 if any
header is bad or any break passes; 77 when there is no C++ compiler.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
FOREIGN = re.compile(r"\b(cu[A-Z]\w*|CU[a-z]\w*|cuda\w*|mdb_\w*|MDB_\w*|io_uring\w*|liburing\w*|"
                     r"ZSTD_\w*|XXH\w*|crypto_\w*|sodium_\w*)")
INCLUDED = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)
# What else a caller writes that comes out of a header.
USES = {"kvtier.h": "struct kvt_options kvt_use(void);\n"
                    "struct kvt_options kvt_use(void) {\n"
                    "    struct kvt_options options = KVT_OPTIONS_INIT;\n"
                    "    return options;\n"
                    "}\n"}
OTHERS = (("gcc", "g++"), ("clang", "clang++"))
OWN = re.compile(r"^(kvtier/\w+\.h|stddef\.h|stdint\.h)$")
BREAKS = {
    "a CUDA type": "cudaStream_t kvt_broken(void);",
    "another project's header": "#include <lmdb.h>",
    "a declaration that is no C++": "struct kvt_broken { int class; };",
    "a number that C++ has from C++17 on": "enum { KVT_BROKEN = (int)0x1p3 };",
    "a declaration that is no C11": "typedef int kvt_broken[static 3];",
}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def names_report(path):
    with open(path, encoding="utf-8") as file:
        code = without_comments(file.read())
    for match in FOREIGN.finditer(code):
        yield f"{path}: the name {match.group(0)} belongs to another project"
    for name in INCLUDED.findall(code):
        if not OWN.match(name):
            yield f"{path}: includes {name}"


def compile_report(include, name, c_compiler, cxx_compiler):
    source = f"#include <kvtier/{name}>\n#include <kvtier/{name}>\n{USES.get(name, '')}"
    for compiler, language, standard in ((c_compiler, "c", "c11"), (c_compiler, "c", "c17"),
                                         (cxx_compiler, "c++", "c++11"),
                                         (cxx_compiler, "c++", "c++17")):
        command = [compiler, "-x", language, f"-std={standard}", *WARNINGS, f"-I{include}",
                   "-fsyntax-only", "-"]
        result = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
        if result.returncode != 0:
            errors = [line for line in result.stderr.splitlines() if "error:" in line]
            reason = errors[0] if errors else result.stderr.strip()
            yield f"{name}: not {standard} of {compiler}: {reason}"


def places(compilers):
    return [os.path.realpath(shutil.which(compiler)) for compiler in compilers]


def report(include, compilers):
    found = []
    for name in sorted(os.listdir(os.path.join(include, "kvtier"))):
        found += names_report(os.path.join(include, "kvtier", name))
        found += compile_report(include, name, *compilers)
    return found


def breaks_pass(include, compilers):
    """Those deliberate breaks that nobody noticed."""
    for what, line in BREAKS.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "include")
            shutil.copytree(include, copy)
            with open(os.path.join(copy, "kvtier", "stats.h"), "a", encoding="utf-8") as file:
                file.write(line + "\n")
            if not report(copy, compilers):
                yield f"self test: {what} was not noticed"


def main():
    include, c_compiler, cxx_compiler = sys.argv[1:4]
    if shutil.which(cxx_compiler) is None:
        print(f"no C++ compiler: {cxx_compiler}")
        return 77
    compilers = (c_compiler, cxx_compiler)
    found = report(include, compilers) + list(breaks_pass(include, compilers))
    for others in OTHERS:
        if all(map(shutil.which, others)) and places(others) != places(compilers):
            found += report(include, others)
    for line in found:
        print(line)
    print(f"{len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
