"""The tables of docs/simulator.md and docs/simulator.zh.md that quote the benchmark of recovery policies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goodput_page_zh import in_chinese

PAGE = Path(__file__).parent.parent / "docs" / "simulator.md"
"""Page with the tables, each between two comments."""
CHINESE_PAGE = PAGE.with_name("simulator.zh.md")
"""Page with the same tables in Chinese."""
TITLES = {
    "human only": "an operator alone",
    "reboot only": "reboot only",
    "replace only": "replace only, 20 % cap",
    "EKS + JobSet": "EKS + JobSet",
    "HyperPod operator": "HyperPod training operator",
    "swap and leave out": "swap and leave out repeaters",
    "adaptive": "`adaptive` without node agents",
    "adaptive with agents": "`adaptive` with node agents, in place",
    "adaptive with agents, standby": "and with standby processes",
    "adaptive with agents, standby, memory checkpoints": "and with a copy in memory each minute",
    "own way at its best": "the product's own way at its best",
    "own way with agents": "the same with node agents, in place: a model",
    "own way with agents, standby": "and with standby processes: a model",
    "own way with agents, standby, memory checkpoints": "and with a copy in memory each minute: a model",
    "bound": "bound",
    "bound, memory checkpoints": "bound with a copy in memory each minute",
}
"""Names of the policies in the tables, in their order."""
HEAD = "| policy | ETTR | range | overhead | own way | recovery p50 | p90 | stops | operator calls |"
"""Head of a table of policies."""
MAIN_RUN = "llama3 at 256 instances"
"""Run of the product with a table of its own."""
LARGE_RUNS = ("llama3, 4 days", "rsc1, 2 days")
"""Runs of the product on all instances of a profile, with 4 spares only."""


def tables(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by the name of their comments."""
    models, product = figures["models"], figures["product"]
    return {
        "table of the race": policies(product.get(MAIN_RUN, {}).get("policies", {}), spares=4),
        "table of the race without spares": policies(product.get(MAIN_RUN, {}).get("policies", {}), spares=0),
        "table of the models": profiles(models),
        "table of the large runs": profiles(_policies_of(product, LARGE_RUNS), (4,)),
        "table of the product": profiles(_policies_of(product, [name for name in product if name not in LARGE_RUNS])),
        "table of improvements": improvements(figures["improvements"]),
    }


def policies(of: Mapping[str, Any], spares: int) -> str:
    """Return the table of the policies with this number of spares, and of the bound."""
    rows = [HEAD, "|---|" + "--:|" * (HEAD.count("|") - 2)]
    for name, title in TITLES.items():
        spared = _spared(name, spares)
        if "memory" not in name and (one := of.get(spared)) is not None:
            rows.append(
                f"| {title} | {one['ettr']:.2f} % | {one['min']:.2f} to {one['max']:.2f} % | {one['overhead']:.2f} | "
                f"{one['own_way']:.2f} | {one['p50_min']:.1f} min | {one['p90_min']:.1f} min | {one['stops']:.0f} | "
                f"{one['operator_calls']:.0f} |"
            )
    return "\n".join(rows) + "\n"


def _policies_of(product: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: product[name]["policies"] for name in names if name in product}


def profiles(runs: Mapping[str, Mapping[str, Any]], numbers: Sequence[int] = (0, 4)) -> str:
    """Return the ETTR of every policy by run: mean, and range in brackets; for each of these numbers of spares."""
    rows = [f"| policy | {' | '.join(runs)} |", "|---|" + "--:|" * len(runs)]
    for spares in numbers:
        for name, title in TITLES.items():
            cells = [_cell(of.get(_spared(name, spares))) for of in runs.values()]
            is_bound = name.startswith("bound")
            if any(cell != "–" for cell in cells) and (spares or not is_bound):
                rows.append(f"| {title}{', 4 spares' if spares and not is_bound else ''} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _spared(name: str, spares: int) -> str:
    """Return the name of a policy with this number of spares. The bound has none."""
    return f"{name}, {spares} spares" if spares and not name.startswith("bound") else name


def _cell(one: Mapping[str, Any] | None) -> str:
    return "–" if one is None else f"{one['ettr']:.2f} % ({one['min']:.2f} to {one['max']:.2f})"


def improvements(runs: Mapping[str, Mapping[str, float]]) -> str:
    """Return the ETTR after each improvement, by run."""
    rows = [f"| each on top of those above | {' | '.join(runs)} |", "|---|" + "--:|" * len(runs)]
    for what in next(iter(runs.values())):
        rows.append(f"| {what} | {' | '.join(f'{of[what]:.2f} %' for of in runs.values())} |")
    return "\n".join(rows) + "\n"


def with_tables(text: str, tables_by_name: Mapping[str, str]) -> str:
    """Return the text of a page with these tables."""
    for name, table in tables_by_name.items():
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = block.sub(lambda match, table=table: f"{match[1]}{table}{match[2]}", text)  # type: ignore[misc]
    return text


def pages(figures: Mapping[str, Any]) -> dict[Path, str]:
    """Return both pages with the tables of these figures."""
    english = tables(figures)
    chinese = {name: in_chinese(table) for name, table in english.items()}
    return {page: with_tables(page.read_text("utf-8"), of) for page, of in ((PAGE, english), (CHINESE_PAGE, chinese))}


def write_page(figures: Mapping[str, Any]) -> None:
    """Write the tables into both pages."""
    for page, text in pages(figures).items():
        page.write_text(text, encoding="utf-8")
