"""`python -m benchmarks.scoreboard` prints the scoreboard.

With `--write`, the scores replace those in benchmarks/results.json, and the pages quote the new scores.
"""

from __future__ import annotations

import sys

from benchmarks import results
from benchmarks.log_kinds import kind_figures
from benchmarks.scoreboard.pages import table, write_pages
from benchmarks.scoreboard.sets import scoreboard_figures

figures = scoreboard_figures()
print(table(figures), end="")
if "--write" in sys.argv[1:]:
    results.update("log_kinds", kind_figures())
    results.update("scoreboard", figures)
    write_pages(figures)
