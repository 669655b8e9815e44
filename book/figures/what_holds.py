"""Figures of chapter 11, What holds."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import COLOUR, GREEN, GREY, INK, LABEL, MARKER, ORANGE, PURPLE, SKY, VERMILION, WIDTH

VERDICTS = {  # a verdict's colour and mark
    "holds": (GREEN, "o"),
    "holds in part": (SKY, "D"),
    "depends on the regime": (ORANGE, "s"),
    "fails its control": (PURPLE, "v"),
    "does not hold": (VERMILION, "X"),
    "not tested yet": (GREY, "_"),
}


def gaps(
    found: dict[str, dict[str, Sequence[float]]],
    paper: dict[str, float],
    band: float = 0.0,
    limit: float | None = None,
) -> Figure:
    """{scenario: {method: differences a seed}}, the paper's gaps; a band around 0."""
    names = list(found)
    fig, ax = plt.subplots(figsize=(WIDTH, 0.95 + 0.74 * max(2, len(names))))
    if band:
        ax.axvspan(-band, band, color="#e8e8e8", zorder=-1)
    for y, name in enumerate(names):
        for method, values in found[name].items():
            shift = {"rcl-cpb": -0.2, "rcl-cpb-plus": 0.05, "own": 0.3}[method]
            hollow = {"mfc": "white"} if method.endswith("plus") else {}
            ax.plot(
                values,
                [y + shift] * len(values),
                MARKER[method],
                color=COLOUR[method],
                alpha=0.85,
                **hollow,
            )
            ax.vlines(
                np.mean(values), y + shift - 0.12, y + shift + 0.12, lw=2.2, color=COLOUR[method]
            )
        if name in paper:
            ax.plot(paper[name], y - 0.2, MARKER["paper"], color=COLOUR["paper"])
    ax.axvline(0, color=INK, lw=0.9)
    ax.set_yticks(range(len(names)), names)
    ax.set(ylim=(len(names) - 0.5, -0.55), xlabel="RCL-CPB minus VCL, points")
    if limit:
        ax.set_xlim(-limit, limit)
    _gaps_legend(fig)
    return fig


def _gaps_legend(fig: Figure) -> None:
    """Which mark is whose difference."""
    marks = [
        ("rcl-cpb", "the paper's method", {}),
        ("rcl-cpb-plus", "with our regime", {"mfc": "white"}),
        ("own", LABEL["own"], {}),
        ("paper", "paper's number", {}),
    ]
    handles = [
        mpl.lines.Line2D([], [], ls="", marker=MARKER[m], color=COLOUR[m], label=text, **look)
        for m, text, look in marks
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)


def verdicts(rows: Sequence[tuple[str, str]]) -> Figure:
    """A row a claim, a column a verdict, a mark where they meet."""
    fig, ax = plt.subplots(figsize=(WIDTH, 0.8 + 0.235 * len(rows)))
    columns = list(VERDICTS)
    for y, (_, verdict) in enumerate(rows):
        ax.axhline(y, color="#eeeeee", lw=0.8, zorder=0)
        colour, mark = VERDICTS[verdict]
        ax.plot(columns.index(verdict), y, mark, color=colour, ms=9, mew=1.5)
    ax.set_yticks(range(len(rows)), [short for short, _ in rows])
    heads = [f"{c.replace(' ', chr(10), 1)}" for c in columns]
    ax.set_xticks(range(len(columns)), heads)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.4, -0.6))
    return fig
