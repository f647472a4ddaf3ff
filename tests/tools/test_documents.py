#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_documents.py - README, docs/, man pages and --help say what the programs do.

Usage: test_documents.py SOURCE-FOLDER BIN-FOLDER. Every command of a document runs as it is
written; only the long ones get smaller sizes behind it. Every option and every JSON key is in the
man page. The C functions in docs/ are those of examples/; names of the interface there exist, and
those of kvtier/stats.h are all explained.
"""
import json
import os
import re
import subprocess

import programs
from programs import TRACE, Programs
from test_kvtool_open import Owner

PAGES = {"kvtool": "tools/kvtool.1", "tierbench": "bench/tierbench.1"}
COMMANDS = {"kvtool": ("ls ns stat get put rm why verify check scrub dump export import engram "
                       "leases options caps top").split(),
            "tierbench": "replay ceiling sweep scale engram load gpu vs sim".split()}
TOY_PROFILE = """{"order_max": 3, "head_count": 2, "class_count": 9, "pad_class": 2, "row_bytes": 8,
    "encoding": "bytes",
    "layers": [{"number": 3, "multipliers": [3, 5, 7], "primes": [7, 7, 7, 7]}]}"""
GUIDES = ("docs/embedding.md", "docs/operations.md")
ENGINEERS = ("engine/ARCHITECTURE.md", "index/SCHEMA.md", "tiers/FORMAT.md", "tests/README.md",
             "bench/README.md")
# What makes a command of the documents short enough for a test, by its first two words.
SMALLER = {
    "tierbench ceiling": "--file-bytes 64M --seconds 0.03",
    "tierbench sweep": "--store-bytes 1G --seconds 0.2 --block-bytes 1M --depth 4",
    "tierbench replay": "--requests 30 --ceiling-seconds 0.1",
    "tierbench scale": "--entries 20000",
    "tierbench engram": "--rows 20000 --seconds 0.03 --batch 4",
    "tierbench load": "--seconds 0.03",
    "tierbench gpu": "--seconds 0.03",
    "tierbench vs": "--count 16 --block-bytes 64K --rounds 1 --seconds 0.01",
}


def keys_of(value):
    """Every key of a JSON value, with the kinds of objects that have free keys left out."""
    if isinstance(value, list):
        for element in value:
            yield from keys_of(element)
    elif isinstance(value, dict):
        for key, element in value.items():
            yield key
            if key == "latencies":
                yield from keys_of(list(element.values()))
            elif key == "options":
                yield from keys_of(list(element.values())[0])
            elif key not in ("counters", "caps", "library"):
                yield from keys_of(element)


class Documents(Programs):
    def text(self, path):
        with open(os.path.join(self.source, path), encoding="utf-8") as file:
            return file.read()

    def page(self, program):
        """The man page without its markup."""
        text = self.text(PAGES[program])
        for mark, plain in (("\\(dq", '"'), ("\\(aq", "'"), ("\\-", "-"), ("\\e", "\\")):
            text = text.replace(mark, plain)
        return text

    def has_peers(self):
        return os.path.exists(os.path.join(self.programs, "tierbench-peers"))

    def shell_lines(self):
        """The commands of the documents, in order."""
        blocks = re.findall(r"^```sh\n(.*?)^```", self.text("README.md"), re.M | re.S)
        yield "README.md", [line for line in "".join(blocks).splitlines()
                            if line.startswith(("build/bin/", "python3 "))]
        for program in PAGES:
            examples = self.page(program).split(".SH EXAMPLES", 1)[1]
            yield PAGES[program], [line for line in examples.splitlines()
                                   if line.startswith("build/bin/")]

    def guide_lines(self, guide):
        """The commands of a guide, in order: in blocks, and in the text and tables."""
        found = re.finditer(r"^```sh\n(.*?)^```|`((?:build/bin/|df |cat )[^`]+)`", self.text(guide),
                            re.M | re.S)
        return [line for match in found for line in (match[1] or match[2]).splitlines()]

    def run_line(self, line):
        """Runs a command of a document, made smaller if it is a long one."""
        words = line.removeprefix("build/bin/").split()
        option = SMALLER.get(" ".join(words[:2]), "").split()
        kept = [word for at, word in enumerate(option) if
                (option[at] if word.startswith("--") else option[at - 1]) not in line]
        if words[1:2] == ["scale"]:
            line = re.sub(r"(?<=--entries )[0-9,]+", "20000", line)
        done = subprocess.run(["bash", "-c", " ".join([line, *kept])], cwd=self.scratch,
                              capture_output=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        if "--json" in line:
            json.loads(done.stdout)
        return done.stdout.decode()

    def test_every_command_of_the_documents_runs(self):
        os.makedirs(self.path("build", "demo"))
        self.replay("build/demo/store")
        measured = set()
        for document, lines in self.shell_lines():
            self.assertGreater(len(lines), 3, document)
            for line in lines:
                if line.startswith("python3 ") and not os.path.exists(self.library):
                    continue  # A sanitized build has no shared library.
                words = line.removeprefix("build/bin/").split()
                if words[:2] == ["tierbench", "vs"] and not self.has_peers():
                    continue
                if words[0] == "tierbench" and line in measured:
                    continue  # Another document has it; what it left is still there.
                measured.add(line)
                with self.subTest(line=line):
                    self.run_line(line)
            for name in ("tour", "copy"):
                subprocess.run(["rm", "-rf", self.path("build", name)], check=True)

    def test_every_command_of_the_guides_runs(self):
        self.replay("build/store")
        owner = Owner(self, "build/served")
        self.addCleanup(owner.kill)
        lines = [line for guide in GUIDES for line in self.guide_lines(guide)]
        self.assertGreater(len(lines), 40)
        for line in dict.fromkeys(lines):
            with self.subTest(line=line):
                self.run_line(line)

    def test_the_functions_of_the_guides_are_those_of_the_examples(self):
        blocks = list(re.finditer(r"^```c\n(.*?)^```", self.text(GUIDES[0]), re.M | re.S))
        self.assertGreater(len(blocks), 8)
        for block in blocks:
            name = re.findall(r"`(examples/\w+\.c)`", self.text(GUIDES[0])[:block.start()])[-1]
            with self.subTest(name=name, line=block[1].splitlines()[0]):
                self.assertIn("\n" + block[1], self.text(name))
                self.assertTrue(block[1].endswith("\n}\n"), "it is no whole function")
        self.assertEqual(re.findall(r"^```c$", self.text(GUIDES[1]), re.M), [])

    def test_the_names_of_the_guides_are_those_of_the_interface(self):
        folder = os.path.join(self.source, "include", "kvtier")
        headers = "".join(self.text(os.path.join(folder, name)) for name in os.listdir(folder))
        known = set(re.findall(r"\bkvt_\w+|\bKVT_\w+", headers))
        for guide in (*GUIDES, "README.md"):
            used = set(re.findall(r"\bkvt_\w+|\bKVT_\w+", self.text(guide)))
            self.assertEqual(used - known, set(), guide)
        said = re.findall(r"^    (KVT_(?:OK|OVERRUN|E_\w+|HEALTH_\w+)) =", headers, re.M)
        self.assertGreater(len(said), 20)
        for name in said:
            self.assertIn(f"`{name}`", self.text(GUIDES[0]))
        options = re.search(r"^struct kvt_options \{(.*?)^\};", headers, re.M | re.S)[1]
        options = re.sub(r"/\*.*?\*/", "", options, flags=re.S)
        fields = re.findall(r"(\w+)\)?(?:\([^)]*\))?;", options)
        self.assertGreater(len(fields), 25)
        rows = re.findall(r"^\| (`.*?) \|", self.text(GUIDES[0]), re.M)
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        self.assertEqual(set(fields) - named, set())

    def test_every_statistic_is_explained_and_none_is_invented(self):
        names = re.findall(r"^    X\((\w+),", self.text("include/kvtier/stats.h"), re.M)
        self.assertGreater(len(names), 70)
        text = self.text(GUIDES[1])
        rows = re.findall(r"^\| (`.*?`) \|", text.split("\n## 10.", 1)[1], re.M)
        explained = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        self.assertEqual(sorted(explained), sorted(names))
        for path in re.findall(r"`(bench/results/[^`]+)`", text):
            self.assertTrue(os.path.exists(os.path.join(self.source, path)), path)
        sources = "".join(map(self.text, (
            "include/kvtier/stats.h", "include/kvtier/kvtier.h", "tools/kvtool.1",
            "bench/sweep/scale.c", "bench/micro/micro_memory.c")))
        for name in re.findall(r"`(\w+_(?:count|bytes|ns|now))`", text.split("\n## 10.", 1)[0]):
            self.assertRegex(sources, rf"\b{name}\b")

    def test_what_engineers_read_names_what_there_is(self):
        sources = {}
        for where, folders, names in os.walk(self.source):
            folders[:] = [name for name in folders if name not in ("build", ".git", "corpus")]
            for name in names:
                if name.endswith((".c", ".h", ".cu", ".py")):
                    sources[os.path.relpath(os.path.join(where, name), self.source)] = ""
        known = set()
        for path in sources:
            known |= set(re.findall(r"\w+(?=\()", self.text(path)))
        for document in ENGINEERS:
            named = set(re.findall(r"`[^`\n]*?(\w+)\(\)[^`\n]*`", self.text(document)))
            self.assertEqual(named - known - {"mdb_find_oldest"}, set(), document)  # LMDB's own.
        listed = self.text(ENGINEERS[0]).split("\n## 12. Files", 1)[1]
        for path in sources:
            if re.fullmatch(r"engine/\w+\.c", path):
                self.assertIn(f"`{os.path.basename(path)}`", listed)

    def test_the_benchmark_readme_knows_which_commands_write_files(self):
        sentence = re.search(r"^(`.*) take `--csv FILE` and `--plot FILE\.svg`.*, `sim`",
                             self.text("bench/README.md"), re.M)[1]
        for command in COMMANDS["tierbench"]:
            text = self.run_program("tierbench", command, "--help").stdout.decode()
            self.assertEqual("--plot FILE.svg" in text, f"`{command}`" in sentence, command)
            self.assertEqual("--plot DIR" in text, command == "sim")

    def test_help_and_man_page_have_the_same_options(self):
        for program, commands in COMMANDS.items():
            page = self.page(program)
            for command in commands:
                text = self.run_program(program, command, "--help").stdout.decode()
                options = re.findall(r"^  (--?[a-z-]+)", text, re.M)
                self.assertIn("--help", options)
                for option in options:
                    self.assertRegex(page, re.escape(option) + r"\b", f"{program} {command}")
                self.assertLess(max(map(len, text.splitlines())), 110)
            listed = self.run_program(program, "--help").stdout.decode()
            for command in commands:
                self.assertRegex(listed, rf"(?m)^  {command} ")
            self.assertRegex(self.run_program(program, "--version").stdout.decode(),
                             rf"\A{program} \d+\.\d+\.\d+\n\Z")

    def test_the_man_page_has_the_policies_of_replay(self):
        text = self.run_program("tierbench", "replay", "--help").stdout.decode()
        said = re.search(r"--policy P .*: (\w+) \(default\), (\w+) or (\w+)\n", text)
        page = re.search(r'\.BI --policy " P"\n(.*?)\n\.TP', self.page("tierbench"), re.S)[1]
        for policy in said.groups():
            self.assertIn(policy, page)

    def check_keys(self, program, report):
        page = self.page(program)
        for key in set(keys_of(report)):
            self.assertRegex(page, rf"\b{re.escape(key)}\b", f"{program} prints {key}")

    def test_every_json_key_is_in_the_man_page(self):
        # Room for all of them: an acknowledged block that was evicted counts as lost.
        done = self.replay("k1", "--acks", "k1.acks", nvme="256M")
        self.check_keys("tierbench", json.loads(done.stdout))
        done = self.run_program("tierbench", "replay", "--trace", TRACE, "--verify-acks", "k1.acks",
                                "--dir", "k1", "--host", "16M", "--nvme", "256M", "--requests", "5",
                                "--ceiling-seconds", "0.05", "--json")
        self.check_keys("tierbench", json.loads(done.stdout))
        done = self.replay("k4", "--hbm", "32M", "--device", "emulation")
        self.assertIn("hbm_pool_ns", done.stdout.decode())
        self.check_keys("tierbench", json.loads(done.stdout))
        for words in (["ls", "k1"], ["stat", "k1"], ["check", "k1"],
                      ["put", "k1", 'a/"x"', "LICENSE"], ["get", "k1", 'a/"x"', "-o", "x"],
                      ["verify", "k1", 'a/"x"'], ["ns", "k1"], ["scrub", "k1"],
                      ["export", "k1", "k1.kva"], ["import", "k1", "k1.kva"], ["options", "k1"],
                      ["caps", "k1"], ["rm", "k1", 'a/"x"']):
            self.check_keys("kvtool", self.json_of("kvtool", *words))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "ceiling", "--dir", "k2", "--file-bytes", "64M", "--seconds", "0.03"))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "scale", "--dir", "k5", "--entries", "1000"))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "sim", "--trace", TRACE, "--policy", "lru,min", "--tiers", "1%,5%,30%",
            "--segment-blocks", "128"))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "engram", "--dir", "k7", "--rows", "20000", "--batch", "4", "--seconds",
            "0.03", "--device", "emulation"))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "load", "LICENSE", "--dir", "k8", "--device", "emulation", "--seconds",
            "0.03"))
        self.check_keys("tierbench", self.json_of(
            "tierbench", "gpu", "--dir", "k9", "--device", "emulation", "--host", "64M", "--nvme",
            "128M", "--pinned", "64M", "--seconds", "0.03"))
        with open(self.path("engram.json"), "w", encoding="utf-8") as file:
            file.write(TOY_PROFILE)
        with open(self.path("engram.rows"), "wb") as file:
            file.write(bytes(28 * 8))
        for words in (["import", "k1", "t", "engram.rows", "--raw", "--profile", "engram.json",
                       "--layer", "3"], ["ls", "k1"], ["verify", "k1", "t"], ["drop", "k1", "t"]):
            self.check_keys("kvtool", self.json_of("kvtool", "engram", *words))
        if self.has_peers():
            self.check_keys("tierbench", self.json_of(
                "tierbench", "vs", "--dir", "k6", "--count", "16", "--block-bytes", "64K",
                "--rounds", "1", "--seconds", "0.001"))

    def test_keys_with_a_quantity_carry_their_unit(self):
        report = json.loads(self.replay("k3").stdout)
        for name, value in report.items():
            if isinstance(value, float):
                self.assertRegex(name, r"_(percent|share|per_s)$")


if __name__ == "__main__":
    programs.main()
