#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""static_programs.py - programs of a build with KVT_STATIC_DEPS need none of the five libraries.

Usage: static_programs.py PROGRAM... Reads what each program asks the loader for. What it needs must
be libraries that come with every glibc, and cmocka, which tests have.
"""
import re
import subprocess
import sys

WITH_GLIBC = r"(?:lib(?:c|m|dl|rt|pthread|gcc_s)|ld-linux[\w-]*)\.so\.\d+"
MAY_NEED = re.compile(WITH_GLIBC + r"|libcmocka\.so\.\d+")


def main():
    complaints = 0
    for program in sys.argv[1:]:
        done = subprocess.run(["readelf", "--dynamic", "--wide", program], capture_output=True,
                              text=True, check=True)
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", done.stdout)
        if not any(name.startswith("libc.so") for name in needed):
            sys.exit(f"{program} does not say that it needs glibc: readelf was not understood")
        for name in needed:
            if not MAY_NEED.fullmatch(name):
                print(f"{program} needs {name}")
                complaints += 1
    return 1 if complaints or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
