"""Figures and tables of chapter 12, Against the field."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

import rclcpb_core as core
from rclcpb import metrics
from rclcpb.costs import bytes_held, runs_searched
from rclcpb.methods import gem, icarl, penalties, plain, pnn, replay
from rclcpb.paper import HYPERPARAMETERS, PROTOCOLS, SOURCES_SAY, PaperRow
from rclcpb.presets import METHODS, OTHERS, SCENARIOS
from rclcpb.records import Record, load_records
from rclcpb.tables import kilobytes, spread

from .evidence import Difference, tested
from .style import COLOUR, GREY, INK, LABEL, MARKER, WIDTH

Found = dict[str, dict[str, list[Record]]]  # of each scenario and method, a record a seed

# Beside the settings found: what decides on one head, RCL-CPB's epochs, the paper's sizes.
VARIANTS = {
    "pmnist": (
        *(f"{m},epochs=10" for m in ("joint", "er", "der++", "ewc", "si", "pnn")),
        "ewc,hidden=100",
    ),
    "mh-smnist": ("ewc,hidden=256",),
    "ta-smnist": ("ewc,mask=all", "er,final_steps=0", "der++,final_steps=0", "icarl,final_steps=0"),
}
UPDATES: dict[str, tuple[Callable, ...]] = {  # the lines that make a method what it is
    "finetune": (plain.PlainMethod.step,),
    "joint": (plain.Joint.take,),
    "er": (replay.ER.loss,),
    "der++": (replay.DERpp.loss,),
    "ewc": (penalties.Penalty.change_gradients, penalties.EWC.consolidate),
    "ewc-online": (penalties.OnlineEWC.consolidate,),
    "lp": (penalties.LP.weight, penalties.LP.importance),
    "si": (penalties.SI.importance,),
    "rwalk": (penalties.RWalk.close_interval,),
    "gem": (gem.dual,),
    "icarl": (icarl.herd, icarl.ICaRL.loss),
    "pnn": (pnn.Columns.forward,),
}


def update(method: str) -> str:
    """A method's own lines, as they stand in its file."""
    return "\n".join(textwrap.dedent(inspect.getsource(part)) for part in UPDATES[method])


def field(results: Path) -> Found:
    """Every recorded method of every scenario on which others than the paper's family are."""
    found = {n: {m: r for m in METHODS if (r := load_records(results, n, m))} for n in SCENARIOS}
    return {name: of for name, of in found.items() if any(m in OTHERS for m in of)}


def variants(results: Path, name: str) -> dict[str, list[Record]]:
    """The recorded variants of a scenario, by their labels."""
    found = {label: load_records(results, name, label) for label in VARIANTS.get(name, ())}
    return {label: of for label, of in found.items() if of}


def accuracies(records: Sequence[Record]) -> list[float]:
    return [100 * core.average_accuracy(r.accuracy) for r in records]


def ranked(of: dict[str, list[Record]]) -> list[str]:
    """Methods, the best mean first."""
    return sorted(of, key=lambda m: -np.mean(accuracies(of[m])))


def rivals(of: dict[str, list[Record]]) -> list[str]:
    """Best first, without joint training: that keeps everything."""
    return [m for m in ranked(of) if m != "joint"]


def title(label: str) -> str:
    """A method's name; a variant's says what is other than in its settings."""
    method, _, changes = label.partition(",")
    return LABEL[method] + (f", {changes.replace('=', ' ').replace('_', ' ')}" if changes else "")


def printed(name: str, method: str) -> PaperRow | None:
    """The paper's main row of a method."""
    rows = (p for p in SCENARIOS[name].paper if p.method.partition(",")[0] == method)
    return next(rows, None)


TABLE = (
    *("method", "accuracy %", "forgetting", "parameters", "kB held", "seconds", "seeds"),
    *("searched", "paper %", "whose protocol"),
)


def table(results: Path, name: str, of: dict[str, list[Record]]) -> list[tuple[str, ...]]:
    """A scenario's rows, best first, with the paper's number and how its source had it."""
    searched, rows = runs_searched(results, name), []
    for label in ranked(of):
        found, row = of[label], printed(name, label)
        rows.append(
            (
                title(label),
                spread(accuracies(found)),
                spread([100 * metrics.forgetting(r.accuracy) for r in found], 1),
                f"{np.mean([r.parameters for r in found]):,.0f}",
                kilobytes(found),
                f"{np.mean([sum(r.seconds) for r in found]):.0f}",
                str(len(found)),
                str(searched.get(label) or ""),
                f"{row.accuracy}" if row else "",
                protocol(name, row) if row else "",
            )
        )
    return rows


def protocol(name: str, row: PaperRow) -> str:
    """Where a number of the paper's is from, and how it was had there."""
    if row.source == "own":
        return "the paper's own run"
    says = SOURCES_SAY.get((name, row.method))
    other = f"; its table says {says}" if says else ""
    return f"{row.source}: {PROTOCOLS[name, row.source]}{other}"


PAPER = ("scenario", "method", "first sizes", "final sizes", "accuracy %", "from", "protocol")


def papers_tables() -> list[tuple[str, ...]]:
    """The paper's Tables 1 to 4, every row."""
    rows = []
    for name, known in SCENARIOS.items():
        for p in known.paper:
            accuracy = f"{p.accuracy}" + (f" ± {p.deviation}" if p.deviation else "")
            sizes = [str(list(s)) if s else "a ResNet-18" for s in (p.first or p.hidden, p.hidden)]
            source = ("this paper", "") if p.source == "own" else (p.source, protocol(name, p))
            rows.append((name, p.method, *sizes, accuracy, *source))
    return rows


def papers_settings() -> list[tuple[str, ...]]:
    """The paper's table of hyperparameters, with its coresets."""
    return [(name, *map(str, values)) for name, values in HYPERPARAMETERS.items()]


# ------------------------------------------------------------------------------ figures


def panels(found: Found, height: float) -> tuple[Figure, list[Axes]]:
    """A panel a scenario, two in a row."""
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, height * rows), squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    for ax, name in zip(axes.flat, found, strict=False):
        ax.set_title(name)
    return fig, list(axes.flat[: len(found)])


def standings(found: Found) -> Figure:
    """A panel a scenario, a row a method, best first: seeds as dots, the paper's number."""
    most = max(len(of) for of in found.values())
    fig, axes = panels(found, 0.9 + 0.2 * most)
    for ax, (name, of) in zip(axes, found.items(), strict=True):
        for y, method in enumerate(ranked(of)):
            values = accuracies(of[method])
            look = {"color": COLOUR[method], "mec": INK, "mew": 0.3, "ms": 4.5}
            ax.plot(values, [y] * len(values), MARKER[method], **look)
            if (row := printed(name, method)) is not None:
                face = GREY if row.source == "own" else "white"
                ax.plot(row.accuracy, y + 0.25, MARKER["paper"], color=GREY, mfc=face, ms=4.5)
        ax.set_yticks(range(len(of)), [LABEL[m] for m in ranked(of)], fontsize=8)
        for text, method in zip(ax.get_yticklabels(), ranked(of), strict=True):
            text.set_fontweight("normal" if method in OTHERS else "bold")
        ax.set_ylim(len(of) - 0.4, -0.6)
        ax.grid(axis="x", color="#e4e4e4")
    fig.supxlabel("average accuracy, % (diamond: paper's number; hollow: quoted by it)", size=10)
    return fig


def costs(found: Found, limit: float | None = None) -> Figure:
    """A row a scenario: accuracy against parameters, and against kB held beside the network."""
    fig, axes = plt.subplots(len(found), 2, figsize=(WIDTH, 0.8 + 2.3 * len(found)), squeeze=False)
    for (left, right), (name, of) in zip(axes, found.items(), strict=True):
        for method, records in of.items():
            accuracy = np.mean(accuracies(records))
            held = np.mean([bytes_held(r) for r in records]) / 1000
            inside = limit is None or held <= limit
            look = {"color": COLOUR[method], "alpha": 1 if inside else 0.15, "ms": 6}
            x = np.mean([r.parameters for r in records]) / 1000
            left.semilogx(x, accuracy, MARKER[method], mec=INK, mew=0.3, **look)
            right.plot(held, accuracy, MARKER[method], mec=INK, mew=0.3, **look)
        right.set_xscale("symlog", linthresh=10)
        right.set_xlim(-1, None)
        for axis, subs in ((left.xaxis, (1, 2, 5)), (right.xaxis, (1,))):
            axis.set_major_locator(LogLocator(subs=subs) if subs[1:] else axis.get_major_locator())
            axis.set_major_formatter("{x:,.0f}")
            axis.set_minor_formatter(NullFormatter())
        if limit is not None:
            right.axvline(limit, color=INK, ls="--", lw=1)
        left.set(title=name, ylabel="accuracy, %")
    axes[-1][0].set_xlabel("thousands of parameters")
    axes[-1][1].set_xlabel("kB held while learning")
    seen = [m for m in METHODS if any(m in of for of in found.values())]
    marks = [
        plt.Line2D([], [], ls="", marker=MARKER[m], color=COLOUR[m], label=LABEL[m]) for m in seen
    ]
    fig.legend(handles=marks, loc="outside lower center", ncols=4, fontsize=8.5)
    return fig


def differences(results: Path, found: Found, against: str) -> list[Difference]:
    """Every other method minus one of the paper's family, seed by seed, corrected for all."""
    pairs = [(name, m, against) for name, of in found.items() for m in ranked(of) if m in OTHERS]
    return tested(results, pairs)


def gaps(tests: Sequence[Difference]) -> Figure:
    """A panel a scenario, a row a method: its lead in points, with a 95 % interval."""
    names = list(dict.fromkeys(d.scenario for d in tests))
    found = {name: [d for d in tests if d.scenario == name] for name in names}
    most = max(len(of) for of in found.values())
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, (0.9 + 0.2 * most) * rows), squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    for ax, (name, of) in zip(axes.flat, found.items(), strict=False):
        for y, d in enumerate(of):
            face = COLOUR[d.a] if d.stands else "white"
            ax.hlines(y, d.mean - d.half, d.mean + d.half, color=COLOUR[d.a], lw=1.6)
            ax.plot(d.mean, y, MARKER[d.a], color=COLOUR[d.a], mfc=face, ms=6)
        ax.axvline(0, color=INK, lw=0.9)
        ax.set_yticks(range(len(of)), [LABEL[d.a] for d in of], fontsize=8)
        ax.set(title=name, ylim=(len(of) - 0.4, -0.6))
        ax.set_xscale("symlog", linthresh=2)
        ax.xaxis.set_major_formatter("{x:+.0f}")
        ax.grid(axis="x", color="#e4e4e4")
    fig.supxlabel(f"points above {LABEL[tests[0].b]} (linear up to 2)", size=10)
    return fig


def standing(found: Found, method: str) -> list[str]:
    """A method's place on each scenario, and who is before it."""
    lines = []
    for name, of in found.items():
        if method in of:
            order = rivals(of)
            place, before = order.index(method), [LABEL[m] for m in order[: order.index(method)]]
            behind = f", behind {', '.join(before)}" if before else ""
            lines.append(
                f"{name}: {LABEL[method]} is number {place + 1} of {len(order)} at"
                f" {np.mean(accuracies(of[method])):.2f} %{behind}."
            )
    return lines
