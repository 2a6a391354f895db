"""The scoreboard as text: the tables of docs/diagnosis.md, and the quotes of both READMEs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.log_kinds import HISTORY, ROOT
from benchmarks.scoreboard.score import SHARES, Seen, Share, share_of, total

Figures = Mapping[str, Any]
QUOTED = ("wrong", "undecided", "wrongful_repairs", "missed_gpu_faults")
"""Shares of all sets together that the READMEs quote."""
WIDTH = 120
"""Characters of a line of a page."""
SECTION = "docs/diagnosis.md#the-scoreboard"


def table(figures: Figures) -> str:
    """Return the scoreboard as a table in Markdown. A cell has the count, the cases, and the 95 % interval."""
    rows = [f"| Set | Seen | {' | '.join(SHARES.values())} |", f"|{'---|' * (len(SHARES) + 2)}"]
    for name, of in figures.items():
        cells = (str(share) if (share := share_of(of, each)) else "-" for each in SHARES)
        rows.append(f"| {name} | {of['seen']} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def history_table() -> str:
    """Return the earlier scores of the parts of the log lines as a table in Markdown."""
    rows = ["| Part | Right kind at first | Right kind unseen |", "|---|---|---|"]
    for part, of in HISTORY.items():
        unseen = Share(*of.unseen[:2]) if of.unseen else "-"
        rows.append(f"| {part} | {Share(*of.first[:2])} | {unseen} |")
    return "\n".join(rows) + "\n"


def unseen_scores(figures: Figures) -> tuple[Share, Share]:
    """Return the right kinds of faults, and the false alarms on benign lines, of lines that no author had seen.

    Sets that are unseen now count. If there are none, the unseen scores of `HISTORY` count.
    """
    unseen = [of for of in figures.values() if of["seen"] == Seen.NO and "right_kind" in of]
    if unseen:
        alarms = total(unseen, "false_alarms")
        right = total(unseen, "right_kind")
        benign_right = alarms.of - alarms.count
        return Share(right.count - benign_right, right.of - alarms.of), alarms
    recorded = [(part, of.unseen) for part, of in HISTORY.items() if of.unseen]
    faults = [score for part, score in recorded if part.startswith("faults")]
    benign = [score for part, score in recorded if part.startswith("benign")]
    return (
        Share(sum(right for right, _, _ in faults), sum(lines for _, lines, _ in faults)),
        Share(sum(alarms for _, _, alarms in benign), sum(lines for _, lines, _ in benign)),
    )


def _unseen(figures: Figures) -> int:
    return sum(of["seen"] == Seen.NO for of in figures.values())


def english_quote(figures: Figures) -> str:
    """Return the quote of README.md."""
    right, alarms = unseen_scores(figures)
    wrong, undecided, repairs, missed = (total(figures.values(), name) for name in QUOTED)
    text = (
        f"`make bench` scores this on cases with a known truth; intervals are of 95 % ([scoreboard]({SECTION})). "
        f"Of log lines that no author of a rule had seen, {right} failures had the right kind, and {alarms} lines of "
        f"healthy runs raised a false alarm. Over all {len(figures)} sets, {_unseen(figures)} of them unseen: wrong "
        f"verdicts {wrong}, undecided {undecided}, repairs of healthy instances {repairs}, missed GPU faults {missed}."
    )
    # A number and its sign stay in one line.
    filled = textwrap.fill(text.replace(" %", "\0%"), WIDTH, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ") + "\n"


def chinese_quote(figures: Figures) -> str:
    """Return the quote of README.zh-CN.md. A line ends where a sentence ends."""
    right, alarms = map(_chinese, unseen_scores(figures))
    wrong, undecided, repairs, missed = (_chinese(total(figures.values(), name)) for name in QUOTED)
    return (
        f"`make bench` 用已知真相的案例给以上判定评分，括号内为 95 % 的置信区间，见[记分板]({SECTION})。\n"
        f"规则作者未见过的日志行：故障类别正确 {right}；健康运行的日志行误报 {alarms}。\n"
        f"全部 {len(figures)} 个集合，其中 {_unseen(figures)} 个作者仍未见过：结论错误 {wrong}，未决 {undecided}，\n"
        f"误修健康实例 {repairs}，漏掉的 GPU 故障 {missed}。\n"
    )


def _chinese(share: Share) -> str:
    return str(share).replace(" of ", "/")


PAGES: Mapping[str, Mapping[str, Callable[[Figures], str]]] = {
    "docs/diagnosis.md": {"scoreboard": table, "earlier scores": lambda _: history_table()},
    "README.md": {"scoreboard": english_quote},
    "README.zh-CN.md": {"scoreboard": chinese_quote},
}
"""For each page, the texts that it quotes, by the names in the comments around them."""


def quoted(page: str, text: str, figures: Figures) -> str:
    """Return the text of a page with the scores of `figures`.

    Raises:
        ValueError: a comment around a quote is missing.
    """
    for name, quote in PAGES[page].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page} has no comments around its quote: {name}")
        text = f"{before}{begin}{quote(figures)}{end}{after}"
    return text


def write_pages(figures: Figures) -> None:
    """Write the scores of `figures` into every page that quotes them."""
    for page in PAGES:
        path = ROOT / page
        path.write_text(quoted(page, path.read_text(encoding="utf-8"), figures), encoding="utf-8")
