"""The two charts of the report as PNG and SVG: ETTR by the size of the cluster, and lost time by cause.

The same report gives the same files, byte for byte, with the same version of matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
"""Colours of text, of axes and of grid lines."""
OURS, BOUND = ("#0b69a3", "#40c3f7"), "#9aa5b1"
"""Colours of the product, without and with spares, and of the lower bound."""
BASELINE_COLOURS = ("#b44d12", "#c99a2e", "#6b7a3a", "#8d5a97", "#3f7f72", "#7d3c3c", "#52606d")
"""Colours of the baseline policies."""
CAUSES = ("#0b69a3", "#4098d7", "#84c5f4", "#b44d12", "#e0a458", "#6b7a3a", "#c5cdd6")
"""Colours of the causes, in the order of their losses; the last colour is that of all other causes."""
CAUSES_MAX = len(CAUSES) - 1
"""Largest number of causes that the chart shows apart."""
STYLE: Any = {
    "svg.hashsalt": "gpu-recovery",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}
"""Settings of matplotlib. The fixed hash salt keeps the ids in SVG files the same."""
WITHOUT_DATES: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
"""Metadata by file type, without dates and versions."""


def draw(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write both charts of a report into `folder` and return the paths of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    name = report["profile"]["name"]
    with matplotlib.rc_context(STYLE):
        figures = {f"ettr-by-size-{name}": _by_size(report), f"lost-by-cause-{name}": _by_cause(report)}
        return [
            _save(figure, folder / f"{stem}.{kind}", kind)
            for stem, figure in figures.items()
            for kind in ("png", "svg")
        ]


def _save(figure: Figure, path: Path, kind: str) -> Path:
    figure.savefig(path, format=kind, metadata=WITHOUT_DATES[kind], facecolor="white")
    return path


def is_line_of_model(name: str) -> bool:
    """Whether the row is the bound or the product's own way at its best, which no implementation is."""
    return name.startswith(("bound", "own way"))


def drawn(policies: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the policies of the charts: those with the most spares, those that use none, and the bound."""
    most = max(policy["spares"] for policy in policies)
    spared = {policy["name"].partition(",")[0] for policy in policies if policy["spares"] == most}
    return [
        policy
        for policy in policies
        if policy["spares"] == most or policy["name"] == "adaptive" or policy["name"] not in spared
    ]


def _colours(names: Sequence[str]) -> dict[str, str]:
    ours, others = iter(OURS), iter(BASELINE_COLOURS * len(names))
    return {
        name: BOUND if is_line_of_model(name) else next(ours, OURS[-1]) if name.startswith("adaptive") else next(others)
        for name in names
    }


def _by_size(report: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    sizes, gpus = report["by_size"]["instances"], report["profile"]["gpus"] // report["profile"]["instances"]
    names = [policy["name"] for policy in drawn(report["policies"])]
    lines = {name: report["by_size"]["ettr"][name] for name in names}
    colours = _colours(list(lines))
    for name, shares in lines.items():
        is_bound = is_line_of_model(name)
        axes.plot(
            sizes,
            [100 * share for share in shares],
            color=colours[name],
            linewidth=1.4 if is_bound else 2,
            linestyle=(0, (4, 2)) if is_bound else "-",
            marker="" if is_bound else "o",
            markersize=4,
            clip_on=False,
        )
    _label_line_ends(axes, {name: 100 * shares[-1] for name, shares in lines.items()}, colours)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}\n{size * gpus:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlim(sizes[0], sizes[-1])
    axes.set_ylim(top=100)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("instances, and their GPUs", labelpad=6)
    rate = report["profile"]["failures_per_1000_node_days"]
    _set_titles(
        axes,
        "Training time that counts",
        f"ETTR by size of the cluster, {rate:g} failures per 1,000 node-days; simulated",
    )
    return figure


def _label_line_ends(axes: Axes, line_ends: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Write the names at the right ends of the lines, with a minimum distance between two names."""
    distance = max(2.0, (100 - min(line_ends.values())) / 16)
    height = 101.0
    for name, share in sorted(line_ends.items(), key=lambda item: -item[1]):
        height = min(share, height - distance)
        axes.annotate(
            f"{name}  {share:.1f} %",
            (1.0, height),
            xycoords=("axes fraction", "data"),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colours[name],
            annotation_clip=False,
        )


def _by_cause(report: Mapping[str, Any]) -> Figure:
    policies = drawn(report["policies"])
    figure = Figure(figsize=(8, 1.7 + 0.5 * len(policies)), layout="constrained")
    axes = figure.add_subplot()
    total = report["profile"]["gpus"] * report["profile"]["days"] * 24
    causes = _largest(policies)
    for row, policy in enumerate(reversed(policies)):
        left, shares_lost = 0.0, {name: 100 * hours / total for name, hours in policy["gpu_hours_lost"].items()}
        shares = {cause: shares_lost.pop(cause, 0.0) for cause in causes} | {"all others": 0.0}
        shares["all others"] = sum(shares_lost.values())
        for colour, (cause, share) in zip(CAUSES, shares.items(), strict=False):
            axes.barh(row, share, left=left, color=colour, height=0.62, label=_label(cause) if row == 0 else None)
            left += share
        axes.annotate(f"{left:.1f} %", (left, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(policies)), [policy["name"] for policy in reversed(policies)], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, handlelength=1, handleheight=1)
    _set_titles(
        axes,
        "Time lost, by cause",
        f"share of all GPU-hours, {report['profile']['gpus']:,} GPUs, {report['profile']['days']:g} days; simulated",
    )
    return figure


def _largest(policies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the causes with the largest losses, summed over all policies."""
    sums: dict[str, float] = {}
    for policy in policies:
        for cause, hours in policy["gpu_hours_lost"].items():
            sums[cause] = sums.get(cause, 0.0) + hours
    return sorted(sums, key=lambda cause: -sums[cause])[:CAUSES_MAX]


def _label(cause: str) -> str:
    return cause.replace("_", " ").replace("gpu", "GPU").replace("nic", "NIC")


def _set_titles(axes: Axes, title: str, subtitle: str) -> None:
    axes.set_title(f"{title}\n", loc="left", fontsize=13, fontweight="bold", color=INK)
    axes.annotate(
        subtitle, (0, 1), xycoords="axes fraction", xytext=(0, 9), textcoords="offset points", fontsize=9.5, color=MUTED
    )
