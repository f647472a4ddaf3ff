#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_example.py - compiles and runs the C block of README.md with the command below it.

Usage: readme_example.py SOURCE-FOLDER BUILD-FOLDER CC [FLAGS ...]
"""
import os
import re
import subprocess
import sys
import tempfile


def main():
    source, build, compiler, flags = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with open(os.path.join(source, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    (program,) = re.findall(r"^```c\n(.*?)^```", readme, re.M | re.S)
    command = re.search(r"^cc (example\.c .*)$", readme, re.M).group(1)
    os.makedirs(os.path.join(build, "tests"), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.join(build, "tests")) as folder:
        with open(os.path.join(folder, "example.c"), "w", encoding="utf-8") as file:
            file.write(program)
        os.symlink(os.path.join(source, "include"), os.path.join(folder, "include"))
        os.symlink(build, os.path.join(folder, "build"))
        command = " ".join([compiler, "-std=c17 -Wall -Wextra -Werror", *flags, command])
        subprocess.run(command, shell=True, cwd=folder, check=True)
        for _ in range(2):  # The second time the store is there already.
            done = subprocess.run(["./example"], cwd=folder, capture_output=True, timeout=60)
            print(done.stdout, done.stderr)
            if done.returncode != 0 or done.stdout != b"65536 bytes, right\n":
                sys.exit(f"the example of README.md ended with {done.returncode}")


if __name__ == "__main__":
    main()
