"""The scoreboard as text: the tables of docs/diagnosis.md and its Chinese page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.log_kinds import HISTORY, ROOT
from benchmarks.scoreboard.score import SHARES, Seen, Share, share_of, total

Figures = Mapping[str, Any]
QUOTED = ("wrong", "undecided", "wrongful_repairs", "missed_gpu_faults")
"""Shares of all sets together in the summary."""


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


def summary(figures: Figures) -> str:
    """Return the summary over all sets, in docs/diagnosis.md."""
    right, alarms = unseen_scores(figures)
    wrong, undecided, repairs, missed = (total(figures.values(), name) for name in QUOTED)
    rows = {
        "log lines that no author of a rule had seen: failures with the right kind": right,
        "log lines that no author of a rule had seen: lines of healthy runs that raised a false alarm": alarms,
        f"all {len(figures)} sets, {_unseen(figures)} of them unseen: wrong verdicts": wrong,
        "all sets: undecided": undecided,
        "all sets: repairs of healthy instances": repairs,
        "all sets: missed GPU faults": missed,
    }
    table_rows = (f"| {name} | {share} |" for name, share in rows.items())
    return "\n".join(["| Of | Result, with the interval of 95 % |", "|---|---|", *table_rows]) + "\n"


CHINESE = {
    "log lines that no author of a rule had seen: failures with the right kind": (
        "规则作者没有见过的日志行：种类正确的失败"
    ),
    "log lines that no author of a rule had seen: lines of healthy runs that raised a false alarm": (
        "规则作者没有见过的日志行：引起误报的正常运行的行"
    ),
    r"all (\d+) sets, (\d+) of them unseen: wrong verdicts": r"全部 \1 组，其中 \2 组没有见过：错误的结论",
    "all sets: undecided": "全部各组：未判定",
    "all sets: repairs of healthy instances": "全部各组：对健康实例的修复",
    "all sets: missed GPU faults": "全部各组：漏掉的 GPU 故障",
    "Of": "对象",
    "Result, with the interval of 95 %": "结果，附 95 % 区间",
    "Set": "组",
    "Seen": "见过",
    "Right kind": "种类正确",
    "False alarms": "误报",
    "Verdict right": "结论正确",
    "Verdict wrong": "结论错误",
    "Undecided": "未判定",
    "Wrongful repairs": "误修",
    "Missed GPU faults": "漏掉的 GPU 故障",
    "Part": "部分",
    "Right kind at first": "最初的种类正确",
    "Right kind unseen": "没有见过时的种类正确",
}
"""The words of the tables in Chinese, by pattern. Each pattern is a whole cell."""


def _chinese(quote: Callable[[Figures], str]) -> Callable[[Figures], str]:
    def translated(figures: Figures) -> str:
        text = quote(figures)
        for english, chinese in CHINESE.items():
            text = re.sub(rf"(?<=\| ){english}(?= \|)", chinese, text)
        return text

    return translated


QUOTES: Mapping[str, Callable[[Figures], str]] = {
    "summary of the scoreboard": summary,
    "scoreboard": table,
    "earlier scores": lambda _: history_table(),
}
PAGES: Mapping[str, Mapping[str, Callable[[Figures], str]]] = {
    "docs/diagnosis.md": QUOTES,
    "docs/diagnosis.zh.md": {name: _chinese(quote) for name, quote in QUOTES.items()},
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
