#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutate.py - apply the mutants of mutants.txt to a scratch copy of the tree.

Usage: mutate.py --list [NAME...]     the names, one a line
       mutate.py --sync TREE          make TREE a copy of this tree; equal files are not touched
       mutate.py --apply TREE NAME    change files in TREE; print the ctest expression to run
       mutate.py --undo TREE NAME     bring these files back (newer, so that they are built again)

A mutant is a block of lines in mutants.txt:
    mutant NAME
    why    what the change breaks
    file   path
    from   text that occurs exactly once in the file; `\\n` stands for a line break
    to     what stands there instead
    tests  ctest -R expression of the tests of which at least one must fail
file, from and to may be repeated. A mutant that no longer fits its file is an error, not a pass.
"""
import os
import shutil
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def read_mutants():
    mutants = {}
    current = None
    with open(os.path.join(ROOT, "tests/mutants/mutants.txt"), encoding="utf-8") as file:
        for line in file:
            word, _, rest = line.strip().partition(" ")
            if not word or word.startswith("#"):
                continue
            if word == "mutant":
                current = mutants.setdefault(rest.strip(), {})
            else:
                current.setdefault(word, []).append(rest.strip().replace("\\n", "\n"))
    return mutants


def read(path):
    with open(path, "rb") as file:
        return file.read()


def sync(tree):
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    kept = {n for n in names if n and os.path.isfile(os.path.join(ROOT, n))}
    for name in kept:
        source, target = os.path.join(ROOT, name), os.path.join(tree, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target) or read(source) != read(target):
            shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for folder, folders, files in os.walk(tree):
        folders[:] = [f for f in folders if os.path.join(folder, f) != os.path.join(tree, "build")]
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, tree) not in kept:
                os.remove(path)


def apply(tree, mutant):
    for name, old, new in zip(mutant["file"], mutant["from"], mutant["to"]):
        path = os.path.join(tree, name)
        text = read(path).decode()
        if text.count(old) != 1:
            sys.exit(f"`{old}` occurs {text.count(old)} times in {name}, not once")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))
    print(mutant["tests"][0])


def main():
    verb = sys.argv[1]
    mutants = read_mutants()
    if verb == "--sync":
        sync(sys.argv[2])
        return
    if verb == "--list":
        wanted = sys.argv[2:] or list(mutants)
        unknown = [name for name in wanted if name not in mutants]
        if unknown:
            sys.exit(f"no such mutant: {' '.join(unknown)}")
        print("\n".join(wanted))
        return
    tree, mutant = sys.argv[2], mutants[sys.argv[3]]
    if verb == "--apply":
        apply(tree, mutant)
    else:
        for name in mutant["file"]:
            shutil.copyfile(os.path.join(ROOT, name), os.path.join(tree, name))


main()
