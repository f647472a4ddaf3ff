#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py - rules that hold for the tree itself: layering, banned calls, sizes, comments, names.

Usage: tidy.py [ROOT]. Prints one line a violation, `path:line: rule: what`; exit code 1 if any.
Each rule is a function that yields (path, line, text); RULES lists them by name, and
tidy_self_test.py proves for each name that a tree which breaks the rule is reported.
"""
import os
import re
import subprocess
import sys

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
RATCHET = "tests/tidy/function_length.txt"

# What a folder may include besides its own headers and include/; the longest name that fits counts.
# The tiers' sub-folders are one layer with tiers/. tests/ are programs that may look into every
# module, and so may bench/micro/, which times one module alone.
LAYERS = {
    "base": {"base"},
    "index": {"index", "base"},
    "tiers": {"tiers", "base"},
    "engine": {"engine", "index", "tiers", "base"},
    "include": {"include"},
    "tools": {"tools"},
    "bench": {"bench", "tools"},
    "bench/micro": {"bench", "bench/micro", "engine", "index", "tiers", "base"},
    "examples": {"examples"},
}
# The simulator runs the policies as they are in the library, `tierbench gpu` counts calls of the
# device's vtable, `tierbench engram` has a stream beside the store's: these files reach them.
LAYERS_OF_FILES = {
    "bench/sim/sim_production.c": {"bench", "tools", "engine", "index", "base"},
    "bench/gpu/gpu_calls.c": {"bench", "tools", "tiers", "base"},
    "bench/sweep/engram_device.c": {"bench", "tools", "tiers", "base"},
}
LIBRARY = ("base", "index", "tiers", "engine")

# Headers of other projects, and the layers that may see them (tests/ may see all).
FOREIGN = [
    (re.compile(r"^lmdb\.h$"), {"index"}),
    (re.compile(r"^liburing(\.h|/)"), {"tiers", "bench"}),
    (re.compile(r"^zstd\w*\.h$"), {"tiers", "bench", "bench/micro", "tools"}),
    (re.compile(r"^cu(da|blas|file)\w*\.h$"), {"tiers"}),
    (re.compile(r"^sodium(\.h|/)"), {"base", "tiers"}),
    (re.compile(r"^(rocksdb/|sqlite3\.h$)"), {"bench"}),
    (re.compile(r"^xxhash\.h$"), {"base", "bench", "tools"}),
]

BANNED_EVERYWHERE = ("strcpy strcat sprintf vsprintf gets atoi atol atof strtok system popen "
                     "alloca mktemp tmpnam "
                     # They can lose a wakeup (glibc's bug 25847): gates and semaphores cannot.
                     "pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait cnd_wait "
                     "cnd_timedwait").split()
# What code of the library reaches through struct kvt_env or not at all.
BANNED_IN_LIBRARY = (
    "malloc calloc realloc free aligned_alloc posix_memalign strdup abort exit _exit printf "
    "fprintf puts perror getenv setenv pthread_create thrd_create usleep sleep nanosleep time "
    "clock_gettime gettimeofday rand random srand getrandom fopen open openat openat2 creat read "
    "pread preadv write pwrite pwritev fsync fdatasync ftruncate fallocate rename renameat unlink "
    "unlinkat mkdir mkdirat mmap munmap signal sigaction fork").split()
# The files that are the border to the operating system.
BORDER = re.compile(r"^(base/\w*_host(_internal)?\.[ch]|tiers/io/[\w.]+)$")
ALLOWED = {
    # A false proof stops debug builds and tests, where nothing else would show it.
    ("base/failure.c", "abort"),
    # The fork page and the atfork handler are part of the host environment.
    ("base/failure.c", "fprintf"),
}

TEXT_ENDINGS = (".c", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".map", ".cu", ".cuh")
COLUMN_ENDINGS = (".c", ".h", ".py", ".cu", ".cuh")
SHARED_NAMES = {"CMakeLists.txt", "README.md", "ARCHITECTURE.md"}
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


class Tree:
    """The files of the tree: relative path -> lines."""

    def __init__(self, root):
        self.root = root
        self.paths = sorted(self._list())
        self._lines = {}

    def _list(self):
        command = ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard", "-z"]
        if os.path.exists(os.path.join(self.root, ".git")):
            out = subprocess.run(command, check=True, capture_output=True).stdout.decode()
            found = [p for p in out.split("\0") if p]
            return [p for p in found if os.path.isfile(os.path.join(self.root, p))]
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
            found += [os.path.relpath(os.path.join(folder, n), self.root) for n in names]
        return found

    def lines(self, path):
        if path not in self._lines:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self._lines[path] = file.read().split("\n")
        return self._lines[path]

    def ending_in(self, *endings):
        return [p for p in self.paths if p.endswith(endings)]

    def code(self):
        return self.ending_in(".c", ".h")


def layer_of(path):
    if path.startswith("bench/micro/"):
        return "bench/micro"
    return path.split("/")[0] if "/" in path else ""


def allowed_layers(path):
    """The layers whose headers a file may include; None: all of them."""
    if path in LAYERS_OF_FILES:
        return LAYERS_OF_FILES[path]
    fitting = [folder for folder in LAYERS if path.startswith(folder + "/")]
    return LAYERS[max(fitting, key=len)] if fitting else None


def without_comments(lines):
    """The lines with comments and string contents blanked, so that calls can be found."""
    text = "\n".join(lines)
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return pattern.sub(blank, text).split("\n")


def rule_layering(tree):
    owner = {os.path.basename(p): layer_of(p) for p in tree.ending_in(".h")}
    for path in tree.code():
        layer, allowed = layer_of(path), allowed_layers(path)
        for number, line in enumerate(tree.lines(path), 1):
            match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if not match or allowed is None:
                continue
            name = match.group(2)
            if name.startswith("kvtier/"):
                continue
            target = owner.get(os.path.basename(name))
            if match.group(1) == '"' and target and target not in allowed:
                yield path, number, f"{layer}/ must not include {name} of {target}/"
            for pattern, layers in FOREIGN:
                if pattern.match(name) and layer not in layers:
                    yield path, number, f"{name} is only for {', '.join(sorted(layers))}"


def rule_parent_include(tree):
    for path in tree.code():
        for number, line in enumerate(tree.lines(path), 1):
            if re.match(r'\s*#\s*include\s+["<][^">]*\.\./', line):
                yield path, number, "an include leaves its folder with ../"


def rule_banned_call(tree):
    everywhere = re.compile(r"(?<![\w.>])(" + "|".join(BANNED_EVERYWHERE) + r")\s*\(")
    library = re.compile(r"(?<![\w.>])(" + "|".join(BANNED_IN_LIBRARY) + r")\s*\(")
    for path in tree.code():
        within = layer_of(path) in LIBRARY and not BORDER.match(path)
        for number, line in enumerate(without_comments(tree.lines(path)), 1):
            names = everywhere.findall(line) + (library.findall(line) if within else [])
            for name in names:
                if (path, name) not in ALLOWED:
                    yield path, number, f"call of {name}()"


def rule_file_length(tree):
    for path in tree.code():
        count = len(tree.lines(path)) - 1
        if count > FILE_LINES_MAX:
            yield path, 1, f"{count} lines, more than {FILE_LINES_MAX}"


def functions(lines):
    """(name, first line, length) of each definition: `{` and `}` stand alone in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            top = start - 1
            while top > 0 and not re.match(r"[A-Za-z_]\w*\(", lines[top - 1]):
                top -= 1
            if top > 0:
                yield re.match(r"\w+", lines[top - 1]).group(0), top, number - start + 1
            start = None


def rule_function_length(tree):
    listed = {}
    if RATCHET in tree.paths:
        for number, line in enumerate(tree.lines(RATCHET), 1):
            if line and not line.startswith("#"):
                path, name, length = line.split()
                listed[(path, name)] = (number, int(length))
    for path in tree.code():
        for name, number, length in functions(tree.lines(path)):
            entry = listed.pop((path, name), None)
            if entry and length > entry[1]:
                yield path, number, f"{name}() grew from {entry[1]} to {length} lines"
            elif entry and length < entry[1]:
                yield RATCHET, entry[0], f"{name}() has {length} lines now: lower or drop its line"
            elif not entry and length > FUNCTION_LINES_MAX:
                yield path, number, f"{name}() has {length} lines, more than {FUNCTION_LINES_MAX}"
    for (path, name), (number, _) in listed.items():
        yield RATCHET, number, f"{path} has no function {name}()"


def rule_contract(tree):
    """Each public function's comment says Threads:, Ownership:, Blocks: (and Completion:)."""
    for path in tree.ending_in(".h"):
        if not path.startswith("include/kvtier/"):
            continue
        lines = tree.lines(path)
        for number, line in enumerate(lines, 1):
            if not re.match(r"(KVT_CHECKED|KVT_API)\b", line):
                continue
            top = number - 1
            while top > 0 and lines[top - 1] != "" and not lines[top - 1].endswith("*/"):
                top -= 1
            bottom = top
            is_bare = top == 0 or lines[top - 1] == ""
            while not is_bare and top > 0 and not lines[top - 1].lstrip().startswith("/*"):
                top -= 1
            comment = "" if is_bare else "\n".join(lines[top - 1:bottom])
            statement = " ".join(lines[number - 1:number + 1])
            name = re.search(r"(kvt_\w+)\(", statement)
            name = name.group(1) if name else line
            words = ["Threads:", "Ownership:", "Blocks:"]
            if name.endswith("_submit"):
                words.append("Completion:")
            missing = [w for w in words if w not in comment]
            if missing:
                yield path, number, f"the comment of {name}() lacks {' '.join(missing)}"


def rule_file_header(tree):
    for path in tree.code():
        lines = tree.lines(path) + ["", "", ""]
        name = os.path.basename(path)
        if lines[0] != "/* SPDX-License-Identifier: Apache-2.0 */":
            yield path, 1, "the first line is not the SPDX line"
        elif lines[1] != "/*" or not re.match(r" \* " + re.escape(name) + r" - \S", lines[2]):
            yield path, 3, f"no file comment that begins with `{name} - `"
    for path in tree.ending_in(".py", ".sh"):
        head = "\n".join(tree.lines(path)[:6])
        if not re.search(r'^(# |""")\S', head, re.M):
            yield path, 1, "no comment at the top says what the file is"


def rule_unique_name(tree):
    seen = {}
    for path in tree.paths:
        name = os.path.basename(path)
        if name in SHARED_NAMES or path.startswith("bench/results/"):  # A folder a machine.
            continue
        if name in seen:
            yield path, 1, f"the name is taken by {seen[name]}"
        seen.setdefault(name, path)


def rule_white_space(tree):
    for path in tree.ending_in(*TEXT_ENDINGS):
        for number, line in enumerate(tree.lines(path), 1):
            if "\t" in line:
                yield path, number, "a tab"
            if line.endswith(" ") or line.endswith("\r"):
                yield path, number, "white space at the end of the line"


def rule_columns(tree):
    for path in tree.ending_in(*COLUMN_ENDINGS):
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > COLUMNS_MAX:
                yield path, number, f"{len(line)} columns, more than {COLUMNS_MAX}"


def rule_unfinished(tree):
    for path in tree.ending_in(*TEXT_ENDINGS, "Makefile"):
        for number, line in enumerate(tree.lines(path), 1):
            if UNFINISHED.search(line):
                yield path, number, "a mark of unfinished work"


def rule_named_file(tree):
    """Files that a document names exist (as a path from the root or the document, or a name).

    Blocks of code are left out: they name what a reader will make."""
    names = {os.path.basename(p) for p in tree.paths}
    token = re.compile(r"(?<![\w*./-])([\w./-]+\.(?:c|h|py|sh|md|map|cmake))(?![\w*-])")
    for path in tree.ending_in(".md"):
        if os.path.basename(path) == "CHANGELOG.md":
            continue
        is_code = False
        for number, line in enumerate(tree.lines(path), 1):
            is_code = is_code != line.startswith("```")
            for name in [] if is_code or line.startswith("    ") else token.findall(line):
                beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
                below = "include/" + name
                if not {name, beside, below} & set(tree.paths) and name not in names:
                    yield path, number, f"names {name}, which is not there"


RULES = {
    "layering": rule_layering,
    "parent-include": rule_parent_include,
    "banned-call": rule_banned_call,
    "file-length": rule_file_length,
    "function-length": rule_function_length,
    "contract": rule_contract,
    "file-header": rule_file_header,
    "unique-name": rule_unique_name,
    "white-space": rule_white_space,
    "columns": rule_columns,
    "unfinished": rule_unfinished,
    "named-file": rule_named_file,
}


def violations(root):
    tree = Tree(root)
    if not tree.code():
        yield "", 0, "tree", f"{root} holds no C file: nothing was checked"
    for rule, check in RULES.items():
        for path, line, text in check(tree):
            yield path, line, rule, text


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    count = 0
    for path, line, rule, text in violations(root):
        print(f"{path}:{line}: {rule}: {text}")
        count += 1
    if count:
        print(f"{count} violations")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
