#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_plots.py - the pictures that tierbench has gnuplot draw. Registered where gnuplot is.

Usage: test_plots.py SOURCE-FOLDER BIN-FOLDER
"""
import os
import shutil
import subprocess
import xml.etree.ElementTree

import programs
from programs import Programs

# Keeps the script that tierbench gives to gnuplot.
RECORDER = """#!/bin/sh
cat >"$RECORDED"
exec "$REAL_GNUPLOT" --default-settings <"$RECORDED"
"""


CEILING = ["ceiling", "--dir", "c", "--file-bytes", "16M", "--seconds", "0.001"]


class Plots(Programs):
    def check_svg(self, name, *needed):
        with open(self.path(name), encoding="utf-8") as file:
            words = file.read()
        root = xml.etree.ElementTree.fromstring(words)
        self.assertTrue(root.tag.endswith("svg"))
        for text in needed:
            self.assertTrue(text in words, f"{name} does not say {text}")
        return words

    def fake(self, folder, words):
        """The environment in which `gnuplot` is that script."""
        os.makedirs(self.path(folder))
        with open(self.path(folder, "gnuplot"), "w", encoding="utf-8") as file:
            file.write(words)
        os.chmod(self.path(folder, "gnuplot"), 0o755)
        return {**os.environ, "PATH": f"{self.path(folder)}:{os.environ['PATH']}"}

    def test_each_command_draws(self):
        self.run_program("tierbench", "scale", "--dir", "e", "--entries", "1000,3000", "--plot",
                         "e.svg")
        self.check_svg("e.svg", "memory of a block", "after SIGKILL")
        self.replay("r", "--plot", "r.svg", requests=3)
        self.check_svg("r.svg", "caller -> HOST")
        self.run_program("tierbench", "sim", "--trace", programs.TRACE, "--policy", "lru,min",
                         "--capacity", "1%,5%", "--plot", "curves")
        self.check_svg("curves/conversation_h1.svg", "lru", "min", "capacity")

    def test_the_same_data_gives_the_same_picture(self):
        """Draws what one run gave to gnuplot once more."""
        gnuplot = shutil.which("gnuplot")
        env = {**self.fake("recorder", RECORDER), "RECORDED": self.path("recorded"),
               "REAL_GNUPLOT": gnuplot}
        self.run_program("tierbench", *CEILING, "--plot", "c.svg", env=env)
        with open(self.path("recorded"), encoding="utf-8") as script:
            again = subprocess.run([gnuplot, "--default-settings"], stdin=script, timeout=60,
                                   capture_output=True, check=True)
        words = self.check_svg("c.svg", "1.00 MiB random", "64.0 KiB sequential")
        self.assertTrue(words == again.stdout.decode(), "the second picture differs")

    def test_a_picture_that_cannot_be_drawn_is_no_file(self):
        # Well with nothing to draw, as the first look at it has it.
        env = self.fake("broken", '#!/bin/sh\n[ -z "$(cat)" ]\n')
        self.run_program("tierbench", *CEILING, "--plot", "x.svg", expect=1, env=env)
        self.assertFalse(os.path.exists(self.path("x.svg")))


if __name__ == "__main__":
    programs.main()
