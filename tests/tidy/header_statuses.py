#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""header_statuses.py - every status that a public header's comment names is provoked by a test.

Usage: header_statuses.py ROOT. Reads the comments of all functions of ROOT/include/kvtier and
header_statuses.txt beside this file, which says for each pair of function and status which test
provokes it. A pair that is not listed, a line whose pair no comment names, and a test that is not
there, is not run, or does not speak of both are complaints; so is an excuse of an unknown kind.
Then it breaks copies of headers, list and tests on purpose: each break must be reported. Exit code
1 if there is any complaint.

Two rules at the top of kvtier.h speak of every function that is given a handle: KVT_E_STATE in a
forked child, KVT_E_POISONED after a broken invariant. They are pairs too, with the names
FUNCTION@fork and FUNCTION@poison. kvt_ticket_results() has a table: its rows are FUNCTION@row.
"""
import os
import re
import sys

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "header_statuses.txt")
TESTS = ("unit", "fault", "model", "stress", "crash", "golden")
HANDLES = ("kvt_store", "kvt_queue", "kvt_ticket", "kvt_reservation", "kvt_hold")
RULES = {"fork": "KVT_E_STATE", "poison": "KVT_E_POISONED"}
# The same functions in a world of a test's making.
WORLDS = {"kvt_open": ["kvt_open_env", "store_open_in"], "kvt_list": ["list_in"],
          "kvt_live_read": ["live_read_in"], "kvt_engram_map_hash": ["engram_map_hash_in"],
          "kvt_engram_hasher_open": ["engram_hasher_open_in"],
          "kvt_import_open": ["import_open_in"]}
# What still works after a broken invariant, besides kvt_close().
POISONED_TOO = ("kvt_health", "kvt_queue_destroy")
# The only reasons for which a pair may have no test.
EXCUSES = {
    "driver": "only the driver of a real GPU can refuse this call",
}
DECLARED = re.compile(r"^(?:KVT_CHECKED|KVT_API)\b[^;]*;", re.M | re.S)
ITEM = re.compile(r"^(\w+)\(|^(?:static [^;{(]*?|\} )\b(\w+)(?:\[[^\]]*\])* = ", re.M)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# --- Headers ------------------------------------------------------------------------------------

def statuses_of(headers):
    """The enumerators that can be refusals or outcomes: KVT_OK needs no list."""
    body = re.search(r"enum kvt_status \{(.*?)^\};", headers["status.h"], re.S | re.M).group(1)
    return set(re.findall(r"\b(KVT_\w+) = ", body)) - {"KVT_OK"}


def sections(comment):
    """A comment by the functions whose paragraph it is: `name - what it does`; "" before these."""
    parts = re.split(r"^ \* (kvt_\w+) - ", comment, flags=re.M)
    named = {"": parts[0]}
    for name, text in zip(parts[1::2], parts[2::2]):
        named[name] = text
    return named


def functions_of(header):
    """(name, declaration, text of the comment that is about it)."""
    comment, end = "", 0
    for match in DECLARED.finditer(header):
        before = header[end:match.start()]
        end = match.end()
        if before.strip() != "":
            comment = before[before.rfind("\n/*"):] if "\n/*" in before else before
        name = re.search(r"\b(kvt_\w+)\(", match.group(0)).group(1)
        named = sections(comment)
        first = next(iter([n for n in named if n]), "")
        yield name, match.group(0), named.get(name, named.get(first))


def rows_of(comment):
    """The rows of a table in a comment: three spaces, a name, two spaces or more."""
    row, found = "", {}
    for line in comment.split("\n"):
        match = re.match(r" \*   (\w[\w, ]*?)  +(\S.*)", line)
        if match:
            row = match.group(1).replace(", ", "-").replace(" ", "-")
            found[row] = match.group(2)
        elif re.match(r" \*    +\S", line) and row:
            found[row] += " " + line[2:].strip()
        else:
            row = ""
    return found


def pairs_of(headers):
    """(function, status) that some comment promises."""
    statuses = statuses_of(headers)
    named = re.compile(r"\b(?:" + "|".join(sorted(statuses)) + r")\b")
    for header in headers.values():
        for name, declaration, comment in functions_of(header):
            if name == "kvt_status_name":
                continue
            rows = rows_of(comment) if name == "kvt_ticket_results" else {}
            for row, text in rows.items():
                yield from ((f"{name}@{row}", status) for status in named.findall(text))
            if rows:
                comment = re.sub(r"^ \*   .*$", "", comment, flags=re.M)
            yield from ((name, status) for status in named.findall(comment))
            is_given = any(re.search(handle + r" \*\w", declaration) for handle in HANDLES)
            if is_given and "enum kvt_status" in declaration and name != "kvt_close":
                yield from ((f"{name}@{rule}", status) for rule, status in RULES.items()
                            if rule != "poison" or name not in POISONED_TOO)


# --- Tests --------------------------------------------------------------------------------------

def items_of(text):
    """Functions and tables of a C file: name -> text up to the next one."""
    marks = [(m.start(), m.group(1) or m.group(2)) for m in ITEM.finditer(text)]
    found = {}
    for (start, name), (end, _) in zip(marks, marks[1:] + [(len(text), "")]):
        found[name] = found.get(name, "") + text[start:end]
    return found


def reached(name, items):
    """The text of an item, and of all that it names."""
    seen, wanted, text = set(), [name], ""
    while wanted:
        one = wanted.pop()
        if one in seen or one not in items:
            continue
        seen.add(one)
        text += items[one]
        wanted += set(re.findall(r"\w+", items[one])) - seen
    return text


class Tests:
    """The tests of the tree: what each of them speaks of, itself and by way of the kits."""

    def __init__(self, files):
        self.files = {os.path.basename(path): text for path, text in files.items()}
        self.items = {name: items_of(text) for name, text in self.files.items()}
        self.support = {}
        for path, text in files.items():
            if "/support/" in path:
                self.support.update(items_of(text))

    def complaint(self, file, test, function, status):
        items = self.items.get(file)
        if items is None:
            return f"there is no {file}"
        if test not in items:
            return f"{file} has no {test}"
        if len(re.findall(r"\b" + test + r"\b", self.files[file])) < 2:
            return f"{file} does not run {test}"
        own = reached(test, items)
        wide = reached(test, {**self.support, **items})
        name = function.split("@")[0]
        if not re.search(r"\b(" + "|".join([name] + WORLDS.get(name, [])) + r")\b", wide):
            return f"{test} does not call {name}()"
        if not re.search(r"\b" + status + r"\b", own):
            return f"{test} does not speak of {status}"
        return None


# --- The list -----------------------------------------------------------------------------------

def complaints(headers, lines, files):
    wanted = dict.fromkeys(pairs_of(headers))
    tests = Tests(files)
    seen = set()
    for number, line in enumerate(lines.split("\n"), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"{os.path.basename(LIST)}:{number}"
        pair = tuple(words[:2])
        if pair not in wanted:
            yield f"{where}: no comment names {' '.join(pair)}"
        elif pair in seen:
            yield f"{where}: {' '.join(pair)} for the second time"
        elif len(words) == 4 and words[2] == "excused":
            if words[3] not in EXCUSES:
                yield f"{where}: {words[3]} is no reason: {', '.join(EXCUSES)}"
        elif len(words) == 4:
            wrong = tests.complaint(words[2], words[3], *pair)
            if wrong:
                yield f"{where}: {' '.join(pair)}: {wrong}"
        else:
            yield f"{where}: not `function status file test`"
        seen.add(pair)
    for function, status in wanted:
        if (function, status) not in seen:
            yield f"no test is listed for {function} {status}"


def tree_of(root):
    folder = os.path.join(root, "include", "kvtier")
    headers = {name: read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
    files = {}
    for label in TESTS + ("support",):
        for name in sorted(os.listdir(os.path.join(root, "tests", label))):
            path = os.path.join(root, "tests", label, name)
            if name.endswith(".c"):
                files[path] = read(path)
    return headers, files


def breaks_pass(headers, lines, files):
    """Those deliberate breaks that nobody noticed."""
    first = next(line for line in lines.split("\n") if line and not line.startswith("#"))
    function, status, file, test = first.split()
    path = next(path for path in files if path.endswith("/" + file))
    promise = headers["hints.h"].replace("KVT_MISS: none of the keys is there.",
                                         "KVT_OVERRUN: never.", 1)
    breaks = {
        "a pair without a test": (headers, lines.replace(first, ""), files),
        "a new promise in a header": ({**headers, "hints.h": promise}, lines, files),
        "a test that is not there": (headers, lines.replace(first, first + "_gone"), files),
        "a test that is not run": (headers, lines, {
            **files, path: re.sub(r"\(" + test + r"\b", "(", files[path])}),
        "a test that speaks of another status": (headers, lines, {
            **files, path: files[path].replace(status, "KVT_E_OTHER")}),
        "a test that calls another function": (headers, lines, {
            name: text.replace(function.split("@")[0], "kvt_other")
            for name, text in files.items()}),
        "an excuse of one's own": (
            headers, lines.replace(first, f"{function} {status} excused laziness"), files),
        "a promise that was taken back": (headers, lines + "kvt_pin KVT_OVERRUN a.c b\n", files),
    }
    for what, broken in breaks.items():
        if not list(complaints(*broken)):
            yield f"self test: {what} was not noticed"


def main():
    headers, files = tree_of(sys.argv[1])
    lines = read(LIST)
    found = list(complaints(headers, lines, files))
    if not found:
        found = list(breaks_pass(headers, lines, files))
    for line in found:
        print(line)
    count = len(dict.fromkeys(pairs_of(headers)))
    print(f"{count} pairs of function and status, {len(found)} complaints")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
