#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile.py - the suite of tests in surroundings that are worse than usual.

Usage: hostile.py SURROUNDING PROGRAMS. Runs some of the tests (in the folder PROGRAMS) there, each
of which must pass as it does elsewhere. Exit code 77, with a reason, where a surrounding cannot
be made (most need root).
"""
import os
import shutil
import subprocess
import sys
import tempfile

NOBODY = 65534
# Tests of whole stores, their files and their lock; with io_uring denied, of the io engines too.
SMALL_SUITE = ["test_store_life", "test_bad_input", "test_nvme_files", "test_lock", "test_direct"]
SUITE = SMALL_SUITE + ["model_real"]
IO_SUITE = SUITE + ["conform_io", "conform_tier"]
# None that insists on io_uring: the rings of all processes of a user count as locked memory.
LOCK_SUITE = SMALL_SUITE + ["test_reclaim"]
# Without io_uring this one has nothing left to run for half of its rows, and says so.
MAY_SKIP = {"conform_io": b"SKIPPED: the io_uring rows"}
EPERM, ENOSYS = 1, 38


class Skip(Exception):
    """Why the surrounding cannot be made here."""


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    if done.returncode != 0:
        raise Skip("mount " + " ".join(arguments) + ": " + done.stderr.decode().strip())


def tmpfs(folder):
    path = os.path.join(folder, "tmpfs")
    os.mkdir(path)
    mount("-t", "tmpfs", "-o", "size=256m", "tmpfs", path)
    return path


def overlay(folder):
    base = tmpfs(folder)
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(os.path.join(base, name))
    merged = os.path.join(base, "merged")
    mount("-t", "overlay", "-o", ",".join(f"{n}dir={base}/{n}" for n in ("lower", "upper", "work")),
          "overlay", merged)
    return merged


def ext4(folder):
    image = os.path.join(folder, "image")
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    if subprocess.run(["mkfs.ext4", "-q", "-F", image], check=False).returncode != 0:
        raise Skip("mkfs.ext4 does not work here")
    path = os.path.join(folder, "ext4")
    os.mkdir(path)
    mount("-o", "loop", image, path)
    return path


def linked(folder):
    """A path with two links in it."""
    os.makedirs(os.path.join(folder, "a", "b"))
    os.symlink("a", os.path.join(folder, "to_a"))
    os.symlink(os.path.join(folder, "to_a", "b"), os.path.join(folder, "to_b"))
    return os.path.join(folder, "to_b")


def owned_by_nobody(folder):
    os.chmod(folder, 0o755)
    path = os.path.join(folder, "own")
    os.mkdir(path)
    os.chown(path, NOBODY, NOBODY)
    return path


# All tests run on tmpfs (/dev/shm) as root anyhow.
# Name: (words for hostile_run, programs, what makes the folder, whether it takes root).
SURROUNDINGS = {
    "uring_eperm": ([f"uring={EPERM}"], IO_SUITE, None, False),
    "uring_enosys": ([f"uring={ENOSYS}"], IO_SUITE, None, False),
    "nobody": ([f"user={NOBODY}"], SUITE, owned_by_nobody, True),
    # Root may lock any amount.
    "memlock": ([f"memlock={1 << 20}", f"user={NOBODY}"], LOCK_SUITE, owned_by_nobody, True),
    "nofile": (["nofile=64"], SMALL_SUITE, None, False),
    "umask": (["umask=000"], SMALL_SUITE, None, False),
    "overlay": ([], SUITE, overlay, True),
    "ext4": ([], SUITE, ext4, True),
    "links": ([], SMALL_SUITE, linked, False),
}


def run_suite(programs, words, suite, folder):
    """Returns how many programs failed."""
    environment = {**os.environ, "KVT_TEST_TMP": folder, "TMPDIR": folder, "KVT_TEST_SEEDS": "1"}
    failures = 0
    for name in suite:
        done = subprocess.run([os.path.join(programs, "hostile_run"), *words, "--",
                               os.path.join(programs, name)], check=False, env=environment,
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"{name}: {done.returncode}")
        is_skipped = done.returncode == 77 and MAY_SKIP.get(name, b"-") in done.stdout
        if done.returncode != 0 and not is_skipped:
            failures += 1
            print(done.stdout.decode("utf-8", "replace")[-4000:])
    left = [n for n in os.listdir(folder) if n.startswith("kvt")]
    if left:
        print("left behind: " + " ".join(left))
    return failures


def main():
    words, suite, make, takes_root = SURROUNDINGS[sys.argv[1]]
    programs = os.path.abspath(sys.argv[2])
    if takes_root and os.geteuid() != 0:
        print("skipped: this takes root")
        return 77
    # Mounts in a namespace of their own go with the last process in it.
    if make in (overlay, ext4) and "KVT_HOSTILE_INSIDE" not in os.environ:
        os.environ["KVT_HOSTILE_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", *sys.argv])
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="kvt-hostile-", dir=place)
    try:
        return 1 if run_suite(programs, words, suite, make(folder) if make else folder) else 0
    except Skip as reason:
        print(f"skipped: {reason}")
        return 77
    finally:
        for name in ("ext4", "tmpfs"):
            subprocess.run(["umount", "-q", "-R", os.path.join(folder, name)], check=False,
                           stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
