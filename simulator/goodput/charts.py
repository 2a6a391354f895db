"""The two charts of the report: ETTR by the size of the cluster, and lost time by cause. As PNG and SVG.

The same report makes the same files, byte for byte, with the same version of matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
OURS, BOUND = ("#0b69a3", "#40c3f7"), "#9aa5b1"
BASELINE_COLOURS = ("#b44d12", "#c99a2e", "#6b7a3a", "#8d5a97")
CAUSES = ("#0b69a3", "#4098d7", "#84c5f4", "#b44d12", "#e0a458", "#6b7a3a", "#c5cdd6")
CAUSES_MOST = len(CAUSES) - 1
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
WITHOUT_DATES: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def draw(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Both charts of a report into a folder; the files."""
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


def _colours(names: Sequence[str]) -> dict[str, str]:
    ours, others = iter(OURS), iter(BASELINE_COLOURS * len(names))
    return {
        name: BOUND
        if name.startswith("floor")
        else next(ours, OURS[-1])
        if name.startswith("adaptive")
        else next(others)
        for name in names
    }


def _by_size(report: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    sizes, gpus = report["by_size"]["instances"], report["profile"]["gpus"] // report["profile"]["instances"]
    lines = report["by_size"]["ettr"]
    colours = _colours(list(lines))
    for name, shares in lines.items():
        is_bound = name.startswith("floor")
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
    _label_ends(axes, {name: 100 * shares[-1] for name, shares in lines.items()}, colours)
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
    _head(
        axes,
        "Training time that counts",
        f"ETTR by size of the cluster, {rate:g} failures per 1,000 node-days; simulated",
    )
    return figure


def _label_ends(axes: Axes, ends: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Names at the right ends of the lines, moved apart where they would meet."""
    apart = max(2.0, (100 - min(ends.values())) / 16)
    below = 101.0
    for name, share in sorted(ends.items(), key=lambda one: -one[1]):
        below = min(share, below - apart)
        axes.annotate(
            f"{name}  {share:.1f} %",
            (1.0, below),
            xycoords=("axes fraction", "data"),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colours[name],
            annotation_clip=False,
        )


def _by_cause(report: Mapping[str, Any]) -> Figure:
    policies = report["policies"]
    figure = Figure(figsize=(8, 1.7 + 0.5 * len(policies)), layout="constrained")
    axes = figure.add_subplot()
    total = report["profile"]["gpus"] * report["profile"]["days"] * 24
    causes = _largest(policies)
    for row, one in enumerate(reversed(policies)):
        left, lost = 0.0, {name: 100 * hours / total for name, hours in one["gpu_hours_lost"].items()}
        shares = {cause: lost.pop(cause, 0.0) for cause in causes} | {"all others": 0.0}
        shares["all others"] = sum(lost.values())
        for colour, (cause, share) in zip(CAUSES, shares.items(), strict=False):
            axes.barh(row, share, left=left, color=colour, height=0.62, label=_words(cause) if row == 0 else None)
            left += share
        axes.annotate(f"{left:.1f} %", (left, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(policies)), [one["name"] for one in reversed(policies)], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, handlelength=1, handleheight=1)
    _head(
        axes,
        "Time lost, by cause",
        f"share of all GPU-hours, {report['profile']['gpus']:,} GPUs, {report['profile']['days']:g} days; simulated",
    )
    return figure


def _largest(policies: Sequence[Mapping[str, Any]]) -> list[str]:
    """The causes that cost most, over all policies together."""
    sums: dict[str, float] = {}
    for one in policies:
        for cause, hours in one["gpu_hours_lost"].items():
            sums[cause] = sums.get(cause, 0.0) + hours
    return sorted(sums, key=lambda cause: -sums[cause])[:CAUSES_MOST]


def _words(cause: str) -> str:
    return cause.replace("_", " ").replace("gpu", "GPU").replace("nic", "NIC")


def _head(axes: Axes, title: str, subtitle: str) -> None:
    axes.set_title(f"{title}\n", loc="left", fontsize=13, fontweight="bold", color=INK)
    axes.annotate(
        subtitle, (0, 1), xycoords="axes fraction", xytext=(0, 9), textcoords="offset points", fontsize=9.5, color=MUTED
    )
