#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_example.py - compiles and runs the first C block of README.md with the command below it;
the others are excerpts of the examples/ file named above them, word for word.

Usage: readme_example.py SOURCE-FOLDER BUILD-FOLDER CC [FLAGS ...]
"""
import os
import re
import subprocess
import sys
import tempfile


def check_excerpts(source, readme):
    """Each C block but the first is found in the file of examples/ that the text names last."""
    blocks = list(re.finditer(r"^```c\n(.*?)^```", readme, re.M | re.S))[1:]
    if not blocks:
        sys.exit("README.md has no excerpt of examples/")
    for block in blocks:
        name = re.findall(r"`(examples/\w+\.c)`", readme[:block.start()])[-1]
        with open(os.path.join(source, name), encoding="utf-8") as file:
            if len(block.group(1).splitlines()) < 3 or block.group(1) not in file.read():
                sys.exit(f"README.md has an excerpt of {name} that is not in it:\n{block.group(1)}")


def main():
    source, build, compiler, flags = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with open(os.path.join(source, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    check_excerpts(source, readme)
    program = re.search(r"^```c\n(.*?)^```", readme, re.M | re.S).group(1)
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
