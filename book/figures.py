"""Every figure of the book, and the few helpers that its chapters share.

    use_style()                            one look for all figures
    show(fig, alt, caption)                a figure with alt text and a caption
    table(header, rows, caption)           a table with a caption
    say(text)                              a computed sentence, as a paragraph
    slider(frames, labels, alt, caption)   frames behind a slider and a play button
    live(function, **widgets)              an ipywidgets slider where a kernel listens
    scenario("ta-smnist")                  what the chapters run: 5,000 digits, or all

Everything `show`, `table` and `slider` write is plain HTML with the pictures inside: it
looks the same in Jupyter, in Colab and on a page without a kernel, and asks no other
host for anything. The chapters' own figures follow, one section a chapter.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import rclcpb_core as core
import rclcpb_runs as runs

RESULTS = Path(os.environ.get("RCLCPB_RESULTS") or runs.RESULTS)  # recorded runs


# ------------------------------------------------------------------------------- style

BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"  # Okabe and Ito's colours
GREEN, SKY, PURPLE, YELLOW = "#009E73", "#56B4E9", "#CC79A7", "#F0E442"
GREY, INK, OLIVE = "#767676", "#222222", "#8A7A00"  # yellow lines vanish on white

COLOUR = {  # a colour means the same in every chapter
    "rcl-cpb": BLUE,
    "rcl-cpb-A": ORANGE,
    "vcl": VERMILION,
    "paper": GREY,
    "plain": PURPLE,
    "coreset-only": GREEN,
    "rcl-cpb-plus": SKY,
    "vcl-plus": OLIVE,
    "own": INK,
}
LABEL = {
    "rcl-cpb": "RCL-CPB",
    "rcl-cpb-A": "−A (no growth)",
    "vcl": "VCL (−AP)",
    "paper": "paper",
    "plain": "plain network",
    "coreset-only": "stored images only",
    "rcl-cpb-plus": "RCL-CPB+",
    "vcl-plus": "VCL+",
    "own": "each in its own settings",
}
MARKER = {
    "rcl-cpb": "o",
    "rcl-cpb-A": "s",
    "vcl": "^",
    "paper": "D",
    "plain": "v",
    "coreset-only": "P",
    "rcl-cpb-plus": "o",
    "vcl-plus": "^",
    "own": "x",
}
TASK_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, INK, YELLOW, GREY, "#7F3C8D")

WIDTH = 7.2  # inches: the text column


def use_style() -> None:
    """One look: an opaque white ground (for dark mode too), few lines, clear type."""
    mpl.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.2),
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 10.5,
            "axes.labelsize": 10,
            "axes.titlelocation": "left",
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.axisbelow": True,
            "lines.linewidth": 1.8,
            "lines.markersize": 5,
            "legend.frameon": False,
            "image.cmap": "Greys",
            "image.interpolation": "nearest",
            "axes.prop_cycle": mpl.cycler(color=TASK_COLOURS[:6]),
        }
    )


def end_labels(
    ax: Axes, entries: Iterable[tuple[float, str, str]], x: float | None = None, gap: float = 0.06
) -> None:
    """Write labels at the ends of lines, (y, text, colour) each, moved apart."""
    low, high = ax.get_ylim()
    x = ax.dataLim.x1 if x is None else x
    ordered = sorted(entries)
    places = np.array([y for y, *_ in ordered], dtype=float)
    for _ in range(100):  # push neighbours apart until each has its room
        close = np.diff(places) < gap * (high - low)
        if not close.any():
            break
        for i in np.flatnonzero(close):
            middle = (places[i] + places[i + 1]) / 2
            places[i : i + 2] = middle + np.array([-0.51, 0.51]) * gap * (high - low)
    for place, (_, text, colour) in zip(places, ordered, strict=True):
        ax.annotate(
            text,
            (x, place),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def dots(ax: Axes, x: float, values: Sequence[float], method: str) -> None:
    """Every seed a dot, the mean a short line."""
    spread = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else [0.0]
    ax.plot(
        x + np.asarray(spread),
        values,
        MARKER[method],
        color=COLOUR[method],
        alpha=0.75,
        mec="white",
        mew=0.5,
    )
    ax.hlines(np.mean(values), x - 0.16, x + 0.16, color=COLOUR[method], lw=2)


# ---------------------------------------------------------------- showing, without host

SOURCES = ("computed here", "recorded run", "paper's number", "drawing")


def png(fig: Figure, dpi: int = 110) -> bytes:
    """A figure as a small PNG (256 colours, no date, no program's name); closes it."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi)
    plt.close(fig)
    picture = Image.open(buffer).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _uri(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _size(picture: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(picture)).size


class Page:
    """A piece of HTML for the page, and plain words for where there is no HTML."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words

    def _repr_html_(self) -> str:
        return self.code

    def __repr__(self) -> str:
        return self.words


def _caption(caption: str, source: str) -> str:
    """The caption with where its numbers come from; that is never left out."""
    if not source.startswith(SOURCES):
        raise ValueError(f"source={source!r}: must start with one of {SOURCES}.")
    return f"{caption.rstrip()} ({source})" if caption else f"({source})"


FIGURE = 'style="margin:0.8em 0;max-width:100%"'
UNDER = 'style="font-size:0.9em;line-height:1.4;margin-top:0.3em"'
PICTURE = 'style="max-width:100%;height:auto;background:#fff;border-radius:4px"'


def show(
    fig: Figure, alt: str, caption: str = "", source: str = "computed here", dpi: int = 110
) -> None:
    """Display a figure with alt text and a caption that names its source.

    source: "computed here", `recorded(records)`, "paper's number", or a mix of them in
    words that starts with one of these; "drawing" for one that shows no data.
    """
    picture, caption = png(fig, dpi), _caption(caption, source)
    width, height = _size(picture)
    code = (
        f'<figure class="rcl-figure" {FIGURE}>'
        f'<img src="{_uri(picture)}" alt="{html.escape(alt)}" width="{width}"'
        f' height="{height}" {PICTURE}>'
        f"<figcaption {UNDER}>{html.escape(caption)}</figcaption></figure>"
    )
    display(Page(code, f"[figure: {alt}] {caption}"))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    source: str = "computed here",
    wrap: dict[int, int] | None = None,
) -> None:
    """Display a table; numbers are written as given, so format them first.

    wrap: columns of sentences, whose lines may break, and their least width in em.
    """
    rows, caption = [[str(c) for c in row] for row in rows], _caption(caption, source)
    styles = [""] * len(header)
    for i, em in (wrap or {}).items():
        styles[i] = f' style="white-space:normal;vertical-align:top;min-width:{em}em"'
    head = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td{style}>{html.escape(c)}</td>" for style, c in zip(styles, row, strict=True))
        + "</tr>"
        for row in rows
    )
    code = (
        f'<figure class="rcl-table" {FIGURE}><div style="overflow-x:auto" tabindex="0">'
        f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"</table></div><figcaption {UNDER}>{html.escape(caption)}</figcaption>"
        "</figure>"
    )
    words = runs.format_table([tuple(row) for row in rows], tuple(header))
    display(Page(code, f"{words}\n{caption}"))


def say(text: str) -> None:
    """Display a sentence made of computed numbers, as a paragraph of the page."""
    style = "margin:0.6em 0;padding-left:0.8em;border-left:3px solid #767676"
    code = f'<p class="rcl-say" style="{style}">{html.escape(text)}</p>'
    display(Page(code, text))


def recorded(records: Sequence[core.Record]) -> str:
    """Which runs a figure shows: 'recorded run: seeds 0–4, 2026-11-16'."""
    seeds = sorted({r.seed for r in records})
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    many = f"{seeds[0]}–{seeds[-1]}" if whole else ", ".join(map(str, seeds))
    dates = sorted({r.started[:10] for r in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"recorded run{'s: seeds' if len(seeds) > 1 else ': seed'} {many}, {when}"


# ------------------------------------------------------------------ sliders and players

PLAYER = """<figure class="rcl-player" id="ID" FIGURE>
<img src="FIRST" alt="ALT" width="WIDTH" height="HEIGHT" PICTURE>
<div style="display:flex;flex-wrap:wrap;gap:0.5em;align-items:center;margin-top:0.3em">
<button type="button" data-step="-1" aria-label="one step back" STYLE>◀</button>
<button type="button" data-play aria-label="play" STYLE>Play</button>
<button type="button" data-step="1" aria-label="one step on" STYLE>▶</button>
<input type="range" min="0" max="LAST" value="START" step="1" aria-label="NAME"
 style="flex:1 1 9em;min-width:7em;max-width:24em">
<output aria-live="polite" style="flex:1 1 8em">LABEL</output></div>
<figcaption UNDER>CAPTION</figcaption>
<script>(function(){var b=document.getElementById("ID");if(!b||b.ready)return;b.ready=1;
var f=FRAMES,l=LABELS,a=ALTS,i=b.querySelector("img"),r=b.querySelector("input"),
o=b.querySelector("output"),p=b.querySelector("[data-play]"),t=null;f[START]=i.src;
function go(k){k=(k+f.length)%f.length;r.value=k;i.src=f[k];i.alt=a[k];
o.textContent=l[k];r.setAttribute("aria-valuetext",l[k])}
function stop(){clearInterval(t);t=null;p.textContent="Play";
p.setAttribute("aria-label","play")}
r.addEventListener("input",function(){stop();go(+r.value)});
b.querySelectorAll("[data-step]").forEach(function(s){s.addEventListener("click",
function(){stop();go(+r.value+ +s.dataset.step)})});
p.addEventListener("click",function(){if(t){stop();return}
if(+r.value==f.length-1)go(0);p.textContent="Stop";p.setAttribute("aria-label","stop");
t=setInterval(function(){if(+r.value>=f.length-1){stop();return}
go(+r.value+1)},SPEED)});
go(START)})()</script></figure>"""
BUTTON = (
    'style="min-width:2.6em;padding:0.25em 0.6em;border:1px solid #767676;'
    'border-radius:4px;background:transparent;color:inherit;cursor:pointer"'
)


def slider(
    frames: Iterable[Figure | bytes],
    labels: Sequence[str],
    alt: str,
    caption: str = "",
    source: str = "computed here",
    start: int = 0,
    speed: int = 900,
    dpi: int = 90,
) -> None:
    """Pre-rendered frames behind a range input and a play button; needs no kernel.

    labels: one a frame, shown beside the slider and added to the frame's alt text; keep
    the frames to one size and to thirty at most. start: the frame shown first.
    """
    pictures = [f if isinstance(f, bytes) else png(f, dpi) for f in frames]
    if len(pictures) != len(labels) or not pictures:
        raise ValueError(f"{len(pictures)} frames, {len(labels)} labels: one each.")
    if len({_size(p) for p in pictures}) > 1:
        raise ValueError("frames of different sizes jump: draw them with one figsize.")
    start = start % len(pictures)
    caption = _caption(caption, source)
    uris = [_uri(p) for p in pictures]
    others = [*uris[:start], "", *uris[start + 1 :]]  # the first is in the page already
    digest = hashlib.sha256("".join([*uris, *labels]).encode()).hexdigest()
    width, height = _size(pictures[0])

    def script(values: Sequence[str]) -> str:  # "<" would end the script early
        return json.dumps(list(values), ensure_ascii=False).replace("<", "\\u003c")

    parts = {
        "FIGURE": FIGURE,
        "PICTURE": PICTURE,
        "UNDER": UNDER,
        "STYLE": BUTTON,
        "SPEED": str(speed),
        "LAST": str(len(pictures) - 1),
        "START": str(start),
        "WIDTH": str(width),
        "HEIGHT": str(height),
        "ID": f"rcl-{digest[:12]}",
        "LABELS": script(labels),
        "ALTS": script([f"{alt}: {x}" for x in labels]),
        "NAME": html.escape(f"choose a frame: {alt}"),
        "LABEL": html.escape(labels[start]),
        "ALT": html.escape(f"{alt}: {labels[start]}"),
        "CAPTION": html.escape(caption),
        "FIRST": uris[start],
        "FRAMES": script(others),
    }
    words = f"[player: {alt}; {len(labels)} frames] {caption}"
    display(Page(_fill(PLAYER, parts), words))


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put each part where its capital name stands, in one pass."""
    names = sorted(parts, key=len, reverse=True)
    return re.sub(rf"\b({'|'.join(names)})\b", lambda m: parts[m[1]], template)


def kernel_listens() -> bool:
    """Is a person at the other end? Not while the book is built, nor under a test."""
    if os.environ.get("RCLCPB_STATIC") or os.environ.get("PYTEST_VERSION"):
        return False
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return bool(getattr(kernel, "_allow_stdin", False))  # executors do not offer input


def live(function: Callable[..., Figure], **widgets: Any) -> None:
    """ipywidgets sliders that redraw `function`, where a kernel listens; else nothing.

    Its static twin, a `slider` of the same function, comes first in the chapter.
    """
    if not kernel_listens():
        return
    from IPython.display import Image as Picture
    from ipywidgets import interact

    def redraw(**values: Any) -> None:
        display(Picture(png(function(**values))))

    interact(redraw, **widgets)


# ------------------------------------------------------------- what the chapters run on


def full() -> bool:
    """RCLCPB_MODE=full asks for all of MNIST, where it is on disk."""
    return os.environ.get("RCLCPB_MODE") == "full" and (core.data_root() / "mnist.npz").exists()


def scenario(name: str, seed: int = 0) -> core.Scenario:
    """The scenario on the embedded 5,000 digits, or on all of MNIST in full mode."""
    if os.environ.get("RCLCPB_MODE") == "full" and not full():
        print(
            "RCLCPB_MODE=full, but MNIST is not on disk: going on with 5,000 digits."
            " `python rclcpb_core.py data mnist --download` gets it."
        )
    return core.make_scenario(name if full() else f"{name}-5k", seed)


def images() -> core.Images:
    """The digits themselves: 4,000 + 1,000 of them, or all of MNIST in full mode."""
    return core.load_images("mnist" if full() else "mnist5k")


def matrix(
    ax: Axes, accuracy: Sequence[Sequence[float]], tasks: Sequence[str], title: str = ""
) -> None:
    """R as a picture: a row after each task, a column for each task, in per cent."""
    n = len(tasks)
    values = np.full((n, n), np.nan)
    for i, row in enumerate(accuracy):
        values[i, : len(row)] = row
    ax.imshow(values, vmin=0, vmax=1.25, cmap="Blues")
    for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
        ax.text(
            j,
            i,
            f"{100 * values[i, j]:.0f}",
            ha="center",
            va="center",
            color="white" if values[i, j] > 0.75 else INK,
        )
    ax.set_xticks(range(n), tasks)
    ax.set_yticks(range(n), tasks)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="tested on", ylabel="after learning", title=title)


# ------------------------------------------------------------------------- 1 forgetting


def task_strip(rows: Sequence[tuple[str, Sequence[Any]]]) -> Figure:
    """Rows of small images, each row with its name."""
    columns = max(len(pictures) for _, pictures in rows)
    size = (WIDTH, 0.72 * len(rows) + 0.1)
    fig, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for row, (name, pictures) in zip(axes, rows, strict=True):
        for ax, picture in zip(row, pictures, strict=True):
            ax.imshow(np.asarray(picture).reshape(28, 28))
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_color("#bbbbbb")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
    return fig


def answers_so_far(answers: Sequence[Any], tasks: Sequence[str]) -> Figure:
    """What a network answers to one kind of image after each task: a bar a task."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.5))
    for y, answer in enumerate(answers):
        share = 100 * np.bincount(np.asarray(answer), minlength=10) / len(answer)
        ends = np.cumsum(share)
        for digit in np.flatnonzero(share):
            ax.barh(
                y,
                share[digit],
                left=ends[digit] - share[digit],
                height=0.7,
                color=TASK_COLOURS[digit // 2],
                ec="white",
            )
            if share[digit] > 4:
                ax.text(
                    ends[digit] - share[digit] / 2,
                    y,
                    str(digit),
                    ha="center",
                    va="center",
                    color="white",
                    fontweight="bold",
                )
    ax.set_yticks(range(len(tasks)), tasks)
    ax.set(ylim=(len(tasks) - 0.5, -0.5), xlim=(0, 100), ylabel="after learning")
    ax.set_xlabel("answers to zeros, % (the number in a bar is the answer)")
    return fig


def forgetting_curves(
    runs_of: dict[str, Sequence[Sequence[float]]], tasks: Sequence[str]
) -> Figure:
    """A panel a question: accuracy on each task, from when it was learned on."""
    fig, axes = plt.subplots(1, len(runs_of), figsize=(WIDTH, 2.9), sharey=True)
    for ax, (title, accuracy) in zip(axes, runs_of.items(), strict=True):
        last = len(accuracy) - 1
        for j in range(len(accuracy)):
            values = [100 * accuracy[i][j] for i in range(j, last + 1)]
            ax.plot(
                range(j, last + 1),
                values,
                color=TASK_COLOURS[j],
                marker="os^Dv"[j % 5],
                clip_on=False,
            )
        ax.set_xticks(range(last + 1), tasks, fontsize=8)
        ax.set_title(title)
        ax.set_xlabel("after learning")
        ax.set_ylim(0, 103)
    axes[0].set_ylabel("accuracy, %")
    handles = [
        mpl.lines.Line2D([], [], color=TASK_COLOURS[j], label=task, marker="os^Dv"[j % 5])
        for j, task in enumerate(tasks)
    ]
    fig.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(tasks),
        fontsize=9,
        title="tested on",
        title_fontsize=9,
    )
    return fig


def matrices(runs_of: dict[str, Sequence[Sequence[float]]], tasks: Sequence[str]) -> Figure:
    """An R matrix a question, side by side."""
    fig, axes = plt.subplots(1, len(runs_of), figsize=(WIDTH, 2.9))
    for ax, (title, accuracy) in zip(axes, runs_of.items(), strict=True):
        matrix(ax, accuracy, tasks, title)
        ax.tick_params(labelsize=8)
        if ax is not axes[0]:
            ax.set(ylabel="", yticklabels=[])
    return fig


def sinking(
    steps: Sequence[int], old: Sequence[float], new: Sequence[float], accuracy: Sequence[float]
) -> Figure:
    """Old images in the first steps of a new task: their logits, and the accuracy."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.8))
    left.plot(steps, old, color=TASK_COLOURS[0])
    left.plot(steps, new, color=TASK_COLOURS[1], ls="--")
    left.set(xlabel="steps of the new task", ylabel="mean largest logit")
    left.set_title("old images: outputs")
    end_labels(
        left, [(old[-1], "old classes", TASK_COLOURS[0]), (new[-1], "new classes", TASK_COLOURS[1])]
    )
    right.plot(steps, 100 * np.asarray(accuracy), color=TASK_COLOURS[0])
    right.set(xlabel="steps of the new task", ylabel="accuracy, %", ylim=(-3, 103))
    right.set_title("old images: accuracy")
    return fig


def confusion(truth: Any, answer: Any, title: str) -> Figure:
    """How often each digit is taken for which, a row a digit, in per cent."""
    counts = np.zeros((10, 10))
    np.add.at(counts, (np.asarray(truth), np.asarray(answer)), 1)
    share = 100 * counts / counts.sum(1, keepdims=True)
    fig, ax = plt.subplots(figsize=(4.6, 4.2))
    ax.imshow(share, vmin=0, vmax=120, cmap="Blues")
    for i, j in zip(*np.nonzero(share >= 1), strict=True):
        ax.text(
            j,
            i,
            f"{share[i, j]:.0f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if share[i, j] > 70 else INK,
        )
    ax.set(xticks=range(10), yticks=range(10), xlabel="answer", ylabel="digit")
    ax.tick_params(length=0)
    ax.set_title(title)
    return fig


# ----------------------------------------------------------- 2 weights as distributions


def one_weight(
    points: tuple[Any, Any],
    prior: tuple[float, float],
    exact: tuple[float, float],
    learned: tuple[float, float] | None,
    truth: float,
) -> Figure:
    """Data for one weight beside its prior, exact posterior and learned q."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    x, y = (np.asarray(values) for values in points)
    line = np.array([-2.2, 2.2])
    if len(x):
        left.plot(x, y, "o", color=INK)
    left.plot(line, truth * line, color=GREY, ls="--", lw=1)
    mean, deviation = learned or exact
    for w in np.random.default_rng(0).normal(mean, deviation, 12):
        left.plot(line, w * line, color=BLUE, lw=0.7, alpha=0.5)
    left.set(xlim=(-2.2, 2.2), ylim=(-4, 4), xlabel="x", ylabel="y")
    left.set_title(f"{len(x)} points, 12 draws of the weight")
    grid = np.linspace(-2.5, 2.5, 500)
    curves = [(prior, GREY, ":", "prior"), (exact, VERMILION, "--", "exact posterior")]
    if learned:
        curves.append((learned, BLUE, "-", "learned q"))
    for (m, d), colour, style, name in curves:
        density = np.exp(-0.5 * ((grid - m) / d) ** 2) / (d * np.sqrt(2 * np.pi))
        right.plot(grid, density, color=colour, ls=style, label=name)
    right.axvline(truth, color=GREY, ls="--", lw=1)
    right.set(xlabel="weight w", ylabel="density", ylim=(0, 4.5), xlim=(-2.5, 2.5))
    right.set_title("what is believed about w")
    right.legend(loc="upper left", fontsize=9)
    return fig


def rho_moves(layers: Sequence[Any], start: float, reach: float) -> Figure:
    """Where rho ended in each layer, and how far Adam could have carried it."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.4))
    names = [f"hidden layer {k + 1}" for k in range(len(layers) - 1)] + ["output layer"]
    for k, values in enumerate(layers):
        body = ax.violinplot(np.asarray(values)[::7], [k], vert=False, widths=0.8)
        for part in [*body["bodies"], body["cmins"], body["cmaxes"], body["cbars"]]:
            part.set_color(BLUE)
    ax.axvline(start, color=INK, lw=1)
    for edge in (start - reach, start + reach):
        ax.axvline(edge, color=GREY, ls="--", lw=1)
    ax.text(start, len(layers) - 0.42, " start", va="bottom")
    ax.text(
        start + reach,
        len(layers) - 0.42,
        "as far as Adam can go ",
        ha="right",
        va="bottom",
        color=GREY,
    )
    ax.set_yticks(range(len(layers)), names)
    ax.set(ylim=(-0.6, len(layers) - 0.1), xlabel="ρ after training")
    return fig


def guesses(pictures: Any, probabilities: Any, labels: Any, columns: int = 6) -> Figure:
    """Images with the two likeliest answers; a cross marks a wrong first one."""
    rows = -(-len(pictures) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 1.55 * rows))
    for ax, picture, p, label in zip(
        axes.flat, pictures, np.asarray(probabilities), labels, strict=True
    ):
        best = np.argsort(p)[::-1][:2]
        words = ", ".join(f"{c}: {100 * p[c]:.0f}%" for c in best)
        ax.imshow(np.asarray(picture).reshape(28, 28))
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("#bbbbbb")
        wrong = "" if best[0] == label else "✗ "
        ax.set_title(wrong + words, fontsize=8, loc="center")
    return fig


def coverage(shares: Any, curves: dict[str, tuple[Any, str]]) -> Figure:
    """Accuracy on the surest share of the test images."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.8))
    for values, method in curves.values():
        style = "-" if method == "rcl-cpb" else "--"
        ax.plot(100 * shares, 100 * np.asarray(values), color=COLOUR[method], ls=style)
    end_labels(
        ax, [(100 * values[-1], name, COLOUR[method]) for name, (values, method) in curves.items()]
    )
    ax.set(xlabel="share of the images answered, surest first, %", ylabel="accuracy on them, %")
    return fig


def overconfidence(angles: Any, curves: dict[str, tuple[Any, Any, str]]) -> Figure:
    """Confidence and accuracy while images turn, a panel a network."""
    fig, axes = plt.subplots(1, len(curves), figsize=(WIDTH, 2.8), sharey=True)
    for ax, (name, (sure, right, method)) in zip(axes, curves.items(), strict=True):
        sure, right = 100 * np.asarray(sure), 100 * np.asarray(right)
        ax.fill_between(angles, right, sure, color=COLOUR[method], alpha=0.18, lw=0)
        ax.plot(angles, sure, color=COLOUR[method], marker="o")
        ax.plot(angles, right, color=INK, marker="s", ls="--")
        ax.set(xlabel="turned by, degrees", ylim=(0, 103), xticks=range(0, 181, 45))
        ax.set_title(name)
        end_labels(ax, [(sure[-1], "confidence", COLOUR[method]), (right[-1], "accuracy", INK)])
    axes[0].set_ylabel("%")
    return fig


def draws(picture: Any, probabilities: Any, title: str) -> Figure:
    """An image beside the class probabilities of single draws of the weights."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.6), width_ratios=[1, 2.6])
    left.imshow(np.asarray(picture).reshape(28, 28))
    left.set(xticks=[], yticks=[])
    p = np.asarray(probabilities)  # (draws, classes)
    shift = np.random.default_rng(0).uniform(-0.28, 0.28, p.shape)
    right.plot((np.arange(10) + shift).ravel(), p.ravel(), ".", color=BLUE, alpha=0.25, ms=4)
    right.hlines(p.mean(0), np.arange(10) - 0.35, np.arange(10) + 0.35, color=VERMILION)
    right.set(xticks=range(10), ylim=(-0.03, 1.03), xlabel="class", ylabel="probability")
    right.set_title(title)
    return fig


# ----------------------------------------------------- 3 variational continual learning


def two_weights(cases: dict[str, tuple[Any, Any, Any]], total: float) -> Figure:
    """(mean, deviations, answer) of two weights a panel, and what a new task asks."""
    fig, axes = plt.subplots(1, len(cases), figsize=(WIDTH, 3.5), sharey=True)
    turn = np.linspace(0, 2 * np.pi, 200)
    for ax, (title, (mean, deviation, answer)) in zip(axes, cases.items(), strict=True):
        for radius in (1, 2):
            ax.plot(
                mean[0] + radius * deviation[0] * np.cos(turn),
                mean[1] + radius * deviation[1] * np.sin(turn),
                color=BLUE,
                lw=1.6 / radius,
            )
        line = np.array([-0.6, 2.6])
        ax.plot(line, total - line, color=ORANGE, ls="--")
        ax.annotate("", answer, mean, arrowprops={"arrowstyle": "-|>", "color": INK})
        ax.plot(*mean, "o", color=BLUE)
        ax.plot(*answer, "s", color=VERMILION, zorder=3)
        ax.axvline(mean[0], color=GREY, ls=":", lw=1)
        ax.set(xlim=(-0.6, 2.6), ylim=(-1.1, 2.1), xlabel="$w_1$", title=title)
        ax.set_aspect("equal")
        ax.text(2.1, total - 1.95, "task 2", color="#8A5F00")
        ax.text(mean[0] + 0.06, -1.02, "task 1", color=GREY)
    axes[0].set_ylabel("$w_2$")
    return fig


def widths(sigma: dict[str, Any], start: float, prior: float) -> Figure:
    """How wide the weights became, a panel a learning rate of rho."""
    fig, axes = plt.subplots(1, len(sigma), figsize=(WIDTH, 2.6), sharex=True)
    edges = np.geomspace(0.02, 3, 70)
    for ax, (title, values) in zip(axes, sigma.items(), strict=True):
        counts, _ = np.histogram(np.asarray(values), edges)
        ax.stairs(100 * counts / counts.sum(), edges, fill=True, color=BLUE)
        for place, name in ((start, "start "), (prior, "prior ")):
            ax.axvline(place, color=INK, ls="--", lw=1)
            ax.text(
                place,
                0.97,
                name,
                ha="right",
                va="top",
                fontsize=9,
                transform=ax.get_xaxis_transform(),
            )
        ax.set(xscale="log", xlabel="σ after the first task", title=title)
        ax.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
        ax.minorticks_off()
    axes[0].set_ylabel("weights, %")
    return fig


def before_after(panels: dict[str, tuple[Any, Any]], tasks: Sequence[str]) -> Figure:
    """Accuracy a task before and after the coreset is fitted, a panel a network."""
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 2.7), sharey=True)
    for ax, (title, (before, after)) in zip(axes, panels.items(), strict=True):
        for j, pair in enumerate(zip(before, after, strict=True)):
            ax.plot([j, j], 100 * np.asarray(pair), color="#bbbbbb", lw=2, zorder=0)
        ax.plot(100 * np.asarray(before), "o", mfc="white", mec=INK, label="before")
        ax.plot(100 * np.asarray(after), "s", color=BLUE, label="after")
        ax.set_xticks(range(len(tasks)), tasks)
        ax.set(xlabel="digits", title=title, xlim=(-0.5, len(tasks) - 0.5))
    axes[0].set_ylabel("accuracy, %")
    axes[0].legend(loc="lower right", fontsize=9)
    return fig


def leash_frame(
    accuracy: Sequence[Sequence[float]],
    tasks: Sequence[str],
    points: dict[float, tuple[float, float]],
    chosen: float,
) -> Figure:
    """R at one weight of the KL term, and where that stands among the others."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.1), width_ratios=[1, 1.2])
    matrix(left, accuracy, tasks, "accuracy, %")
    new, kept = 100 * np.array(list(points.values())).T
    right.plot(new, kept, color="#bbbbbb", lw=1.2, marker="o", mfc="white", mec=GREY)
    x, y = (100 * value for value in points[chosen])
    right.plot(x, y, "o", color=VERMILION, ms=10)
    right.annotate(
        f"λ = {chosen:g}",
        (x, y),
        xytext=(0, 10),
        ha="center",
        textcoords="offset points",
        color=VERMILION,
    )
    right.set(xlabel="a task just learned, %", ylabel="old tasks at the end, %")
    right.set_title("learning against keeping")
    right.margins(0.14)
    return fig


# --------------------------------------------------------- 4 pruning by signal-to-noise

BINS = {  # of the SNR after task 1, in the paper's colours, each with a second cue
    "SNR above 10⁻²": (BLUE, "-"),
    "10⁻⁵ to 10⁻²": (ORANGE, "--"),
    "below 10⁻⁵": (GREEN, ":"),
}


def adaptations(
    moves: Sequence[Sequence[Any]], bins: Sequence[Sequence[Any]], tasks: Sequence[str]
) -> Figure:
    """How far weights moved at each later task, by bin of their SNR after task 1.

    moves[t][k]: |change of mu| of layer k at a task; bins[k]: the layer's three masks.
    """
    rows, columns = len(bins), len(moves)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 4.2), sharex=True, sharey="row")
    edges = np.arange(-9, -0.9, 0.25)  # the first bar is for weights that stayed
    for t, k in np.ndindex(columns, rows):
        ax, values = axes[k, t], np.asarray(moves[t][k])
        for (colour, style), mask in zip(BINS.values(), bins[k], strict=True):
            chosen = values[np.asarray(mask)]
            logs = np.where(chosen > 0, np.log10(np.maximum(chosen, 1e-8)), -8.9)
            share = 100 * np.histogram(logs, edges)[0] / max(len(chosen), 1)
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.3)
            ax.stairs(share, edges, color=colour, ls=style, lw=1.4)
        if k == 0:
            ax.set_title(f"task {t + 2}: {tasks[t + 1]}")
        ax.set_xticks([-8.875, -6, -4, -2], ["none", "−6", "−4", "−2"])
    for k in range(rows):
        axes[k, 0].set_ylabel(f"hidden layer {k + 1}\nshare of the bin, %")
    fig.supxlabel("log₁₀ of the change of μ", fontsize=10)
    handles = [
        mpl.lines.Line2D([], [], color=c, ls=s, label=n, lw=2.4) for n, (c, s) in BINS.items()
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9)
    return fig


def three_weights(cases: dict[str, tuple[float, float]]) -> Figure:
    """A few weights as Gaussians: how much of each lies on either side of zero."""
    fig, axes = plt.subplots(1, len(cases), figsize=(WIDTH, 2.2), sharex=True)
    grid = np.linspace(-0.32, 0.48, 400)
    for ax, (name, (mu, sigma)) in zip(axes, cases.items(), strict=True):
        density = np.exp(-0.5 * ((grid - mu) / sigma) ** 2) / sigma
        ax.fill_between(grid, density, color=BLUE, alpha=0.3, lw=0)
        ax.plot(grid, density, color=BLUE)
        ax.axvline(0, color=INK, lw=1)
        ax.axvline(mu, color=VERMILION, ls="--", lw=1.4)
        ax.set(yticks=[], xlabel="weight", title=name, ylim=(0, None))
        ax.spines["left"].set_visible(False)
    return fig


def pulled(paths: dict[str, Sequence[float]], levels: dict[str, float]) -> Figure:
    """A weight on which only its prior acts, step by step, from a few starts."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = zip((BLUE, ORANGE, GREEN, PURPLE), ("-", "--", "-.", ":"), strict=True)
    for (name, values), (colour, style) in zip(paths.items(), looks, strict=False):
        ax.plot(np.abs(values), color=colour, ls=style, label=name)
    for name, value in levels.items():
        ax.axhline(value, color=INK, lw=0.9)
        ax.text(1.01, value, name, va="center", fontsize=9, transform=ax.get_yaxis_transform())
    ax.set(yscale="log", ylim=(1e-7, 2), xlabel="step of task 1", ylabel="|μ|")
    ax.legend(loc="upper right", ncols=4, fontsize=9)
    return fig


def together(edges: Sequence[str], shares: dict[str, Sequence[float]]) -> Figure:
    """Share of weights with a low SNR, by how often both of their ends are on."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.8))
    width, hatches = 0.8 / len(shares), ("", "////")
    for k, (name, values) in enumerate(shares.items()):
        x = np.arange(len(values)) + (k - (len(shares) - 1) / 2) * width
        ax.bar(
            x,
            100 * np.asarray(values),
            0.94 * width,
            color=(BLUE, ORANGE)[k],
            hatch=hatches[k],
            edgecolor="white",
            label=name,
        )
    ax.set_xticks(range(len(edges)), edges)
    ax.set(
        xlabel="images in which both ends of the weight are on",
        ylabel="weights with SNR below 0.01, %",
    )
    ax.legend()
    return fig


def zero_or_fresh(betas: Sequence[float], found: dict[str, Sequence[Sequence[float]]]) -> Figure:
    """Accuracy on what was learned, right after the weights below beta are changed."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = (("o", BLUE, "-"), ("s", VERMILION, "--"))
    ends = []
    for (marker, colour, style), (name, values) in zip(looks, found.items(), strict=True):
        each = 100 * np.asarray(values)  # (betas, draws)
        ax.plot(betas, each.mean(1), color=colour, ls=style)
        ax.plot(
            np.repeat(betas, each.shape[1]),
            each.ravel(),
            marker,
            color=colour,
            alpha=0.75,
            mec="white",
            mew=0.5,
        )
        ends.append((each.mean(1)[-1], name, colour))
    ax.set(xscale="log", xlabel="threshold β", ylabel="accuracy, %")
    end_labels(ax, ends, x=1.1 * max(betas))
    return fig


def beta_frame(snr: Sequence[Any], beta: float) -> Figure:
    """What one beta re-initialises: where in the SNRs, and at which pixels."""
    fig, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.9), width_ratios=[1, 1, 0.8])
    edges = np.arange(-9, 2.01, 0.25)
    for k, (ax, layer) in enumerate(zip(axes, snr, strict=False)):
        values = np.asarray(layer)
        logs = np.log10(np.maximum(values.ravel(), 1e-9))
        share = 100 * np.histogram(logs, edges)[0] / values.size
        low = edges[1:] <= np.log10(beta) + 1e-9
        ax.stairs(share, edges, fill=True, color="#d9d9d9")
        ax.stairs(np.where(low, share, 0), edges, fill=True, color=BLUE)
        ax.axvline(np.log10(beta), color=INK, ls="--", lw=1)
        delta = int((values < beta).sum())
        ax.set_title(
            f"layer {k + 1}: δ = {delta:,}\n= {delta / values.shape[1]:.1f}"
            f" of {len(values)} neurons",
            fontsize=9.5,
        )
        ax.set(xlabel="log₁₀ SNR", xticks=[-8, -6, -4, -2, 0, 2])
    axes[0].set_ylabel("weights, %")
    below = (np.asarray(snr[0]) < beta).mean(0).reshape(28, 28)
    axes[2].imshow(below, vmin=0, vmax=1, cmap="Blues")
    axes[2].set(xticks=[], yticks=[])
    axes[2].spines[:].set_visible(True)
    axes[2].set_title("layer 1, by pixel", fontsize=9.5)
    return fig


# ----------------------------------------------------- 5 growing by activation distance

CLASS_COLOURS = (BLUE, ORANGE, YELLOW, GREY, PURPLE, GREEN)  # paper's, classes 0 to 5


def class_activations(
    layers: Sequence[Sequence[Any]], gamma: float, tasks: Sequence[str]
) -> Figure:
    """Mean activation of every neuron for a task's two classes: layers[k][t] is phi.

    Neurons are sorted by the distance of their two values; left of the line is shared.
    """
    rows, columns = len(layers), len(tasks)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 4.6), sharey="row")
    for k, t in np.ndindex(rows, columns):
        ax, phi = axes[k, t], np.asarray(layers[k][t])
        distance = np.abs(phi[0] - phi[1])
        order = np.argsort(-distance)
        low, high = phi.min(0)[order], phi.max(0)[order]
        ax.vlines(np.arange(len(order)), low, high, color="#aaaaaa", lw=0.9)
        for c, marker in enumerate("os"):
            ax.plot(
                phi[c][order],
                marker,
                color=CLASS_COLOURS[2 * t + c],
                ms=3,
                mec=INK,
                mew=0.25,
                label=str(2 * t + c),
            )
        shared = int((distance > gamma).sum())
        ax.axvline(shared - 0.5, color=INK, ls="--", lw=1)
        ax.set_title(f"task {t + 1}: {tasks[t]}" if k == 0 else "")
        ax.text(
            0.98,
            0.96,
            f"{shared} of {len(order)}\nabove γ",
            ha="right",
            va="top",
            transform=ax.transAxes,
            fontsize=9,
            bbox={"fc": "white", "ec": "none", "pad": 1},
        )
        if k == rows - 1:
            ax.set_xlabel("neurons, sorted")
            ax.legend(
                title="class", loc="center right", fontsize=8, title_fontsize=8, handletextpad=0.1
            )
    for k in range(rows):
        axes[k, 0].set_ylabel(f"hidden layer {k + 1}\nmean activation")
    return fig


def distances_by_task(
    layers: Sequence[Sequence[Any]], gamma: float, tasks: Sequence[str]
) -> Figure:
    """Each task's distances, sorted, against gamma: layers[k][t], a panel a layer."""
    fig, axes = plt.subplots(1, len(layers), figsize=(WIDTH, 2.9), sharey=True)
    for k, ax in enumerate(axes):
        for t, style in zip(range(len(tasks)), ("-", "--", "-."), strict=True):
            values = np.sort(np.asarray(layers[k][t]))[::-1]
            ax.plot(values, ls=style, color=TASK_COLOURS[t], label=f"task {t + 1}: {tasks[t]}")
        ax.axhline(gamma, color=INK, ls="--", lw=1)
        ax.text(
            1,
            gamma,
            f"γ = {gamma:g}",
            ha="right",
            va="bottom",
            fontsize=9,
            transform=ax.get_yaxis_transform(),
        )
        ax.set(title=f"hidden layer {k + 1}", xlabel="neurons, sorted", yscale="log")
    axes[0].set(ylabel="distance (Eq. 5)", ylim=(3e-3, None))
    axes[0].legend(loc="lower left")
    return fig


def untrained_too(shares: dict[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Share of neurons above gamma: trained networks, and untrained ones."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.6))
    for x, (trained, untrained) in enumerate(shares.values()):
        dots(ax, x - 0.2, 100 * np.asarray(trained), "rcl-cpb")
        dots(ax, x + 0.2, 100 * np.asarray(untrained), "paper")
    ax.set_xticks(range(len(shares)), list(shares))
    ax.set(ylabel="neurons above γ, %", ylim=(0, 100), xlim=(-0.6, len(shares) - 0.4))
    looks = (("o", BLUE, "trained, a seed each"), ("D", GREY, "untrained"))
    handles = [mpl.lines.Line2D([], [], ls="", marker=m, color=c, label=n) for m, c, n in looks]
    fig.legend(handles=handles, loc="outside upper center", ncols=2)
    return fig


def gamma_frame(
    distances: Sequence[Any], gamma: float, required: Sequence[float], freed: Sequence[float]
) -> Figure:
    """One gamma: which neurons count as shared, and what Eq. 7 adds then."""
    fig, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.9), width_ratios=[1, 1, 1.1])
    for k, (ax, layer) in enumerate(zip(axes, distances, strict=False)):
        values = np.sort(np.asarray(layer))[::-1]
        shared = int((values > gamma).sum())
        ax.fill_between(np.arange(shared), values[:shared], color=SKY, lw=0, alpha=0.5)
        ax.plot(values, color=BLUE)
        ax.axhline(gamma, color=INK, ls="--", lw=1)
        ax.set(xlabel="neurons, sorted", ylim=(0, 1.0))
        ax.set_title(f"layer {k + 1}: {shared} above γ", fontsize=9.5)
        left = 0.0
        alpha = max(0, round(required[k] - shared - freed[k]))
        parts = ((shared, SKY, ""), (freed[k], GREEN, "...."), (alpha, ORANGE, "////"))
        for width, colour, hatch in parts:
            axes[2].barh(
                1 - k, width, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.5
            )
            left += width
        axes[2].text(0, 1 - k + 0.31, f"layer {k + 1}: add {alpha}", fontsize=9.5)
    axes[0].set_ylabel("distance (Eq. 5)")
    axes[2].axvline(required[0], color=INK, lw=1)
    axes[2].text(required[0], -0.62, "required ", ha="right", fontsize=9)
    axes[2].set(xlabel="neurons", yticks=[], ylim=(-0.7, 1.65), xlim=(0, 180))
    axes[2].set_title("shared, freed, added", fontsize=9.5)
    return fig


def growth_shock(sizes: Sequence[int], found: dict[str, Sequence[Sequence[float]]]) -> Figure:
    """Accuracy on the old task right after growing, every draw a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = {"random": (VERMILION, "s", "--", 0.12), "zero": (BLUE, "o", "-", -0.12)}
    ends = []
    for name, values in found.items():
        colour, marker, style, shift = looks[name]
        each = 100 * np.asarray(values)  # (sizes, draws)
        x = np.arange(len(sizes))
        ax.plot(x, each.mean(1), color=colour, ls=style)
        ax.plot(
            np.repeat(x + shift, each.shape[1]),
            each.ravel(),
            marker,
            ls="",
            color=colour,
            alpha=0.75,
            mec="white",
            mew=0.5,
        )
        ends.append((each.mean(1)[-1], name, colour))
    ax.set_xticks(x, sizes)
    ax.set(xlabel="neurons added to each hidden layer", ylabel="accuracy, %")
    end_labels(ax, ends, x=x[-1] + 0.15)
    return fig


# ------------------------------------------------------------------------ 6 single head


def switches(accuracy: dict[tuple[bool, bool, bool], Sequence[float]], floor: float) -> Figure:
    """Every combination of (re-initialise, restore, replay): every seed a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    names = {
        (False, False): "neither",
        (True, False): "re-init.",
        (False, True): "restore",
        (True, True): "both",
    }
    places = {}
    for replay, offset in ((False, 0.0), (True, 4.7)):
        for k, pair in enumerate(names):
            places[(*pair, replay)] = offset + k
        ax.text(
            offset + 1.5,
            104,
            "with replay" if replay else "without replay",
            ha="center",
            fontweight="bold",
        )
    for key, values in accuracy.items():
        dots(ax, places[key], 100 * np.asarray(values), "rcl-cpb")
        top = f"{100 * np.mean(values):.0f}"
        ax.text(places[key] + 0.22, 100 * np.mean(values), top, va="center", fontsize=9)
    ax.axhline(100 * floor, color=GREY, ls=":", lw=1.2)
    ax.text(3.85, 100 * floor + 1.5, "last pair only", color=GREY, ha="center", fontsize=8.5)
    ax.set_xticks([*places.values()], [names[key[:2]] for key in places])
    ax.set(ylabel="average accuracy, %", ylim=(0, 103), xlim=(-0.5, 8.4))
    return fig


def first_losses(starts: dict[str, np.ndarray], tasks: Sequence[str]) -> Figure:
    """Before the first step of each task: the loss, and which outputs err (seeds)."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.8))
    looks = (("kept", VERMILION, "^", -0.12), ("fresh", BLUE, "o", 0.12))
    titles = ("loss before the first step, nats", "error at old outputs, per image")
    for k, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        ends = []
        for name, colour, marker, shift in looks:
            values = starts[name][..., k]  # (seeds, tasks)
            x = np.arange(values.shape[1])
            ax.plot(x, values.mean(0), color=colour)
            ax.plot(
                np.tile(x + shift, len(values)),
                values.ravel(),
                marker,
                ls="",
                color=colour,
                alpha=0.75,
                mec="white",
                mew=0.5,
            )
            ends.append((values.mean(0)[-1], name, colour))
        ax.set_xticks(x, tasks)
        ax.set(title=title, xlabel="task that begins", xlim=(-0.35, x[-1] + 0.3))
        ax.set_ylim(0, None if k == 0 else 1.05)
        end_labels(ax, ends, x=x[-1] + 0.1, gap=0.1)
    return fig


def _hatch(bars: Iterable[Any]) -> None:
    """What is new: another colour, and stripes for those who see no colours."""
    for bar in bars:
        bar.set_facecolor(ORANGE)
        bar.set_edgecolor("white")
        bar.set_hatch("////")


def _class_bars(ax: Axes, values: Any, new: int) -> None:
    """A bar a class; the newest classes hatched and in another colour."""
    values = np.asarray(values)
    bars = ax.bar(range(len(values)), values, color=BLUE, width=0.75)
    _hatch(bars[len(values) - new :])
    ax.set_xticks(range(len(values)))
    ax.tick_params(axis="x", length=0)


def head_bias(states: dict[str, tuple[Any, Any]], new: int) -> Figure:
    """A column a state of the output layer: mean logits, and how often each wins."""
    fig, axes = plt.subplots(2, len(states), figsize=(WIDTH, 4.0), sharey="row", sharex=True)
    for column, (title, (logits, share)) in zip(axes.T, states.items(), strict=True):
        _class_bars(column[0], logits, new)
        _class_bars(column[1], 100 * np.asarray(share), new)
        column[0].set_title(title)
        column[0].axhline(0, color=INK, lw=0.8)
        column[1].axhline(100 / len(share), color=INK, ls=":", lw=1.2)
        column[1].set_xlabel("output neuron")
    axes[0, 0].set_ylabel("mean logit")
    axes[1, 0].set_ylabel("answers, %")
    return fig


def replay_frame(
    share: Any, accuracy: Sequence[float], tasks: Sequence[str], new: int, title: str
) -> Figure:
    """One moment of replay: how often each class is the answer, and the accuracies."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    _class_bars(left, 100 * np.asarray(share), new)
    left.axhline(100 / len(share), color=INK, ls=":", lw=1.2)
    left.set(xlabel="output neuron", ylabel="answers, %", ylim=(0, 65), title=title)
    bars = right.bar(range(len(accuracy)), 100 * np.asarray(accuracy), color=BLUE)
    _hatch(bars[-1:])
    for k, value in enumerate(accuracy):
        right.text(k, 100 * value + 1.5, f"{100 * value:.0f}", ha="center", fontsize=9)
    right.set_xticks(range(len(accuracy)), tasks)
    right.set(xlabel="digits", ylabel="accuracy, %", ylim=(0, 108))
    right.set_title(f"mean {100 * np.mean(accuracy):.1f} %")
    return fig


# ------------------------------------------------------------------------- 7 end to end


def _neurons(ax: Axes, births: Sequence[int], x: float, title: str) -> None:
    """A layer as a block of squares, each in the colour of the task it was added at."""
    columns = 12
    place = np.arange(sum(births))
    task = np.repeat(np.arange(len(births)), births)
    colours = np.array(TASK_COLOURS)[task] if len(task) else []
    ax.scatter(
        x + 0.34 * (place % columns), -0.34 * (place // columns), s=20, marker="s", c=colours, lw=0
    )
    words = " + ".join(str(n) for n in births if n) or "0"
    ax.text(x - 0.17, 1.0, f"{title}: {sum(births)}", fontsize=9.5, fontweight="bold")
    ax.text(x - 0.17, 0.45, f"= {words}", fontsize=8.5)


def growth_frame(
    births: Sequence[Sequence[int]],
    outputs: int,
    accuracy: Sequence[Sequence[float]],
    tasks: Sequence[str],
    title: str,
) -> Figure:
    """The network as it stands, beside R as far as it is filled."""
    fig, (ax, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.4), width_ratios=[1.65, 1])
    for k, layer in enumerate(births):
        _neurons(ax, layer, 5.2 * k, f"hidden layer {k + 1}")
    x = 5.2 * len(births)
    ax.text(x - 0.17, 1.0, f"output: {outputs}", fontsize=9.5, fontweight="bold")
    for c in range(outputs):
        ax.scatter(x + 0.2, -0.1 - 0.72 * c, s=110, c=TASK_COLOURS[c // 2])
        ax.text(
            x + 0.2, -0.12 - 0.72 * c, str(c), ha="center", va="center", color="white", fontsize=8
        )
    ax.set(xlim=(-0.4, x + 1.9), ylim=(-7.6, 1.6))
    ax.axis("off")
    ax.set_title(title, loc="left", fontsize=10)
    matrix(right, accuracy, tasks, "accuracy, %")
    return fig


def pruned_pixels(share: Any, lit: Any) -> Figure:
    """Which pixels' weights were re-initialised, beside which pixels are ever lit."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    titles = ("share of a pixel's weights re-initialised", "pixel's mean brightness")
    for ax, values, title in zip(axes, (share, lit), titles, strict=True):
        shown = ax.imshow(np.asarray(values).reshape(28, 28), vmin=0, cmap="Blues")
        ax.set_title(title)
        ax.set(xticks=[], yticks=[])
        fig.colorbar(shown, ax=ax, shrink=0.85)
    return fig


def sorted_distances(distances: Sequence[Any], gamma: float, title: str = "") -> Figure:
    """Each layer's distances of Eq. 5, sorted, against gamma: right of it is shared."""
    fig, axes = plt.subplots(1, len(distances), figsize=(WIDTH, 2.8), sharey=True)
    for k, (ax, layer) in enumerate(zip(axes, distances, strict=True)):
        values = np.sort(np.asarray(layer))[::-1]
        shared = int((values > gamma).sum())
        ax.fill_between(np.arange(shared), values[:shared], color=SKY, lw=0, alpha=0.5)
        ax.plot(values, color=BLUE)
        ax.axhline(gamma, color=INK, ls="--", lw=1)
        ax.text(len(values), gamma, f" γ = {gamma:g}", ha="right", va="bottom")
        ax.set_title(f"hidden layer {k + 1}: {shared} of {len(values)} can be shared")
        ax.set_xlabel("neurons, sorted")
        ax.set_ylim(0)
    axes[0].set_ylabel("distance (Eq. 5)")
    fig.suptitle(title)
    return fig


def steps_accuracy(
    steps: Sequence[str], accuracy: Sequence[Sequence[float]], tasks: Sequence[str]
) -> Figure:
    """Accuracy on each task after each step of Algorithm 1."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.0))
    values = 100 * np.asarray(accuracy)
    for j in range(len(tasks)):
        ax.plot(values[:, j], marker="os^Dv"[j % 5], color=TASK_COLOURS[j])
    ax.set_xticks(range(len(steps)), steps)
    ax.set(ylim=(-4, 104), ylabel="accuracy, %")
    end_labels(
        ax, [(values[-1, j], f"digits {task}", TASK_COLOURS[j]) for j, task in enumerate(tasks)]
    )
    return fig


def opinions(image: Any, answers: Sequence[Any], tasks: Sequence[str]) -> Figure:
    """What the network says about one image after each task."""
    fig, axes = plt.subplots(1, len(answers) + 1, figsize=(WIDTH, 2.1))
    axes[0].imshow(np.asarray(image).reshape(28, 28))
    axes[0].set(xticks=[], yticks=[])
    axes[0].set_title("the image", fontsize=9)
    for t, (ax, answer) in enumerate(zip(axes[1:], answers, strict=True)):
        colours = [TASK_COLOURS[c // 2] for c in range(len(answer))]
        ax.barh(range(len(answer)), np.asarray(answer), color=colours)
        ax.set(xlim=(0, 1), ylim=(9.6, -0.6), xticks=[0, 1])
        ax.set_yticks(range(10), range(10) if t == 0 else [""] * 10)
        ax.set_title(f"after {tasks[t]}", fontsize=9)
    axes[1].set_ylabel("class")
    return fig


# -------------------------------------------------------------------------- 8 ablations


def methods_accuracy(
    accuracy: dict[str, dict[int, float]], paper: dict[str, float] | None = None
) -> Figure:
    """Average accuracy a method; every seed a dot, thin lines join equal seeds."""
    paper = paper or {}
    fig, ax = plt.subplots(figsize=(WIDTH, 3.2))
    joined: dict[int, list[tuple[float, float]]] = {}
    for x, values in enumerate(accuracy.values()):
        spread = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else [0.0]
        for seed, shift in zip(sorted(values), spread, strict=True):  # as `dots` does
            joined.setdefault(seed, []).append((x + shift, 100 * values[seed]))
    for line in joined.values():
        ax.plot(*np.array(line).T, color="#bbbbbb", lw=1, zorder=0)
    for x, (method, values) in enumerate(accuracy.items()):
        points = 100 * np.array([values[seed] for seed in sorted(values)])
        dots(ax, x, points, method)
        ax.text(x + 0.2, points.mean(), f"{points.mean():.1f}", va="center")
        if method in paper:
            ax.plot(x - 0.25, paper[method], MARKER["paper"], color=COLOUR["paper"])
            ax.text(
                x - 0.3,
                paper[method],
                f"paper {paper[method]:.1f}",
                va="center",
                ha="right",
                color=COLOUR["paper"],
                fontsize=9,
            )
    ax.set_xticks(range(len(accuracy)), [LABEL[m] for m in accuracy])
    ax.set(ylabel="average accuracy, %", xlim=(-0.75, len(accuracy) - 0.45))
    ax.margins(y=0.2)
    return fig


def shares(
    panels: dict[str, dict[str, np.ndarray]], tasks: Sequence[str], ylabel: str, low: float = 0
) -> Figure:
    """A panel a title, a line a method: shares (seeds, tasks); every seed a dot."""
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.1), sharey=True)
    for ax, (title, methods) in zip(axes, panels.items(), strict=True):
        for k, (method, values) in enumerate(methods.items()):
            x, values = np.arange(len(tasks)), 100 * np.asarray(values)
            ax.plot(x, values.mean(0), color=COLOUR[method], ls=("-", "--", ":")[k % 3])
            ax.plot(
                np.tile(x + 0.08 * (k - 1), len(values)),
                values.ravel(),
                ls="",
                marker=MARKER[method],
                color=COLOUR[method],
                alpha=0.7,
                ms=4.5,
                mec="white",
                mew=0.4,
            )
        ax.set_xticks(x, tasks)
        ax.set(title=title, xlabel="after learning", ylim=(low, 103))
    axes[0].set_ylabel(ylabel)
    handles = [
        mpl.lines.Line2D(
            [], [], color=COLOUR[m], marker=MARKER[m], ls=("-", "--", ":")[k % 3], label=LABEL[m]
        )
        for k, m in enumerate(methods)
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return fig


def forgetting_by_method(
    accuracy: dict[str, Sequence[Sequence[Sequence[float]]]], tasks: Sequence[str]
) -> Figure:
    """A panel a method, a line a task: the mean over seeds, every seed a dot."""
    fig, axes = plt.subplots(1, len(accuracy), figsize=(WIDTH, 3.2), sharey=True)
    last = len(tasks) - 1
    for ax, (method, runs_of) in zip(axes, accuracy.items(), strict=True):
        for j, colour in zip(range(last + 1), TASK_COLOURS, strict=False):
            x = np.arange(j, last + 1)
            values = 100 * np.array([[R[i][j] for i in x] for R in runs_of])
            ax.plot(x, values.mean(0), color=colour, marker="os^Dv"[j % 5])
            ax.plot(np.tile(x, len(values)), values.ravel(), ".", color=colour, ms=4, alpha=0.6)
        ax.set_xticks(range(last + 1), tasks, fontsize=8)
        ax.set(title=LABEL[method], xlabel="after learning", ylim=(0, 103))
    axes[0].set_ylabel("accuracy, %")
    handles = [
        mpl.lines.Line2D([], [], color=TASK_COLOURS[j], label=task, marker="os^Dv"[j % 5])
        for j, task in enumerate(tasks)
    ]
    fig.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(tasks),
        fontsize=9,
        title="tested on",
        title_fontsize=9,
    )
    return fig


# ------------------------------------------------------------------------ 9 sensitivity


def sweep(
    found: dict[float, Sequence[tuple[float, Sequence[int]]]],
    name: str,
    range_of_paper: tuple[float, float] | None = None,
) -> Figure:
    """{value: (accuracy, sizes) a seed}: both against the value, every seed a dot."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.1))
    x = np.arange(len(found))
    for place, entries in zip(x, found.values(), strict=True):
        dots(left, place, [accuracy for accuracy, _ in entries], "rcl-cpb")
    means = [np.mean([a for a, _ in entries]) for entries in found.values()]
    left.plot(x, means, color=BLUE, lw=1, alpha=0.6)
    ends = []
    for k, (colour, marker) in enumerate(((BLUE, "o"), (ORANGE, "s"))):
        sizes = [[size[k] for _, size in entries] for entries in found.values()]
        for place, values in zip(x + 0.1 * k - 0.05, sizes, strict=True):
            right.plot(
                [place] * len(values),
                values,
                marker,
                color=colour,
                alpha=0.75,
                mec="white",
                mew=0.5,
            )
        right.plot(x, [np.mean(values) for values in sizes], color=colour, ls=("-", "--")[k])
        ends.append((float(np.mean(sizes[-1])), f"layer {k + 1}", colour))
    for ax in (left, right):
        ax.set_xticks(x, [f"{value:g}" for value in found])
        ax.set(xlabel=name, xlim=(-0.5, len(x) - 0.5))
        if range_of_paper:
            low, high = range_of_paper
            for place in (i for i, v in enumerate(found) if low <= v <= high):
                ax.axvspan(place - 0.5, place + 0.5, color="#eeeeee", lw=0, zorder=-1)
    left.set(title="average accuracy, %")
    left.margins(y=0.25)
    right.set(title="neurons after the last task")
    right.set_ylim(0, None)
    end_labels(right, ends, x=x[-1] + 0.15)
    return fig


def added_by_gamma(gammas: Sequence[float], added: Sequence[Sequence[int]]) -> Figure:
    """What Eq. 7 adds to each layer of one network, against gamma."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.6))
    ax.axvspan(0.05, 0.3, color="#eeeeee", zorder=-1)
    ends = []
    for k, (colour, style) in enumerate(((BLUE, "-"), (ORANGE, "--"))):
        ax.step(gammas, added[k], where="mid", color=colour, ls=style)
        ends.append((float(added[k][-1]), f"layer {k + 1}", colour))
    ax.set(xlabel="γ", ylabel="neurons to add", xlim=(0, gammas[-1]))
    end_labels(ax, ends, gap=0.1)
    return fig


def size_against_accuracy(
    series: dict[str, dict[float, Sequence[tuple[float, Sequence[int]]]]],
) -> Figure:
    """Every run of every sweep: all its neurons, its accuracy; the means labelled."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    for (name, found), colour, marker, down in zip(
        series.items(), (BLUE, VERMILION), "o^", (False, True), strict=False
    ):
        means = []
        for value, entries in found.items():
            neurons = [sum(size) for _, size in entries]
            accuracy = [a for a, _ in entries]
            ax.plot(neurons, accuracy, marker, color=colour, alpha=0.45, mec="white", mew=0.4)
            means.append((np.mean(neurons), np.mean(accuracy), f"{value:g}"))
        ax.plot(
            *np.array([m[:2] for m in means]).T,
            color=colour,
            label=name,
            marker=marker,
            ls="-" if not down else "--",
        )
        for neurons, accuracy, text in means:
            ax.annotate(
                text,
                (neurons, accuracy),
                xytext=(0, -14 if down else 8),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontsize=9,
                zorder=5,
                bbox={"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.8},
            )
    ax.set_xscale("log")
    ticks = [t for t in (25, 50, 100, 200, 400, 800) if ax.get_xlim()[0] <= t <= ax.get_xlim()[1]]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="neurons after the last task, both layers")
    ax.set_ylabel("average accuracy, %")
    ax.margins(y=0.12)
    ax.legend(loc="lower right")
    return fig


def setting_frame(records: Sequence[core.Record], top: int, title: str) -> Figure:
    """One setting: the layers' sizes task by task, and the last accuracies."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    tasks = records[0].tasks
    x = np.arange(len(tasks))
    for k, (colour, marker) in enumerate(((BLUE, "o"), (ORANGE, "s"))):
        for r in records:
            sizes = [size[k] for size in r.hidden]
            left.plot(
                x,
                sizes,
                color=colour,
                marker=marker,
                alpha=0.7,
                lw=1.2,
                ls=("-", "--")[k],
                label=f"layer {k + 1}" if r is records[0] else None,
            )
    left.set_xticks(x, tasks)
    left.set(xlabel="after learning", ylabel="neurons", ylim=(0, top), title=title)
    left.legend(loc="upper left", ncols=2, fontsize=9)
    values = 100 * np.array([r.accuracy[-1] for r in records])
    right.bar(x, values.mean(0), color=BLUE, alpha=0.25)
    right.plot(
        np.tile(x, len(values)), values.ravel(), "o", color=BLUE, alpha=0.75, mec="white", mew=0.5
    )
    right.set_xticks(x, tasks)
    right.set(xlabel="tested on", ylabel="accuracy, %", ylim=(0, 103))
    right.set_title(f"mean {values.mean():.1f} %")
    return fig


# ------------------------------------------------------------------------ 10 full runs

# What the search found for a method by itself, where that is not its preset.
OWN = {
    "mh-cifar100": ("rcl-cpb,kl_weight=0.01", "vcl,kl_weight=0.03"),
    "ta-cifar100": ("vcl,replay_kl=0.1",),
    "mnist-svhn-cifar10": (
        "rcl-cpb,kl_weight=0.1,replay_kl=0.03",
        "vcl,kl_weight=0.1,replay_kl=0.03",
    ),
}


def own_pair(name: str) -> tuple[str, str]:
    """RCL-CPB and VCL on a scenario, each as the search found it best."""
    best = {label.split(",")[0]: label for label in ("rcl-cpb", *OWN[name])}
    return best["rcl-cpb"], best["vcl"]


def scenario_dots(
    found: dict[str, dict[str, Sequence[float]]], paper: dict[str, dict[str, float]]
) -> Figure:
    """A panel a scenario, a row a method: every seed a dot, the paper's a diamond."""
    methods = [m for m in core.METHODS if any(m in of for of in found.values())]
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.7 + 2.3 * rows), sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, found, strict=False):
        for y, method in enumerate(methods):
            _row_of_dots(ax, y, found[name].get(method, ()), method)
            if (number := paper.get(name, {}).get(method)) is not None:
                ax.plot(number, y + 0.3, MARKER["paper"], color=COLOUR["paper"], ms=5)
        ax.set_yticks(range(len(methods)), [LABEL[m] for m in methods])
        ax.set(title=name, ylim=(len(methods) - 0.4, -0.6))
        ax.margins(x=0.16)
        ax.grid(axis="x", color="#e4e4e4")
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    fig.supxlabel("average accuracy, % (grey diamond: paper's number)", fontsize=10)
    return fig


def _row_of_dots(ax: Axes, y: float, values: Sequence[float], method: str) -> None:
    """Every seed a dot, the mean a short upright line with its number."""
    if not len(values):
        return
    shift = np.linspace(-0.14, 0.14, len(values)) if len(values) > 1 else [0.0]
    ax.plot(
        values,
        y + np.asarray(shift),
        MARKER[method],
        color=COLOUR[method],
        alpha=0.8,
        mec=INK,
        mew=0.3,
    )
    mean = float(np.mean(values))
    ax.vlines(mean, y - 0.26, y + 0.26, color=COLOUR[method], lw=2)
    ax.annotate(
        f"{mean:.1f}",
        (max(values), y),
        xytext=(6, 0),
        va="center",
        textcoords="offset points",
        fontsize=8.5,
    )


def network_sizes(
    found: dict[str, dict[str, Sequence[Sequence[int]]]], paper: dict[str, int]
) -> Figure:
    """A panel a scenario: all hidden neurons after each task, a thin line a seed."""
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.5 + 2.1 * rows), squeeze=False)
    for ax, (name, methods) in zip(axes.flat, found.items(), strict=False):
        ends = []
        for method, runs_of in methods.items():
            values = np.array(runs_of)  # (seeds, tasks)
            x = np.arange(1, values.shape[1] + 1)
            style = "-" if method == "rcl-cpb" else "--"
            ax.plot(x, values.T, color=COLOUR[method], lw=0.8, alpha=0.6, ls=style)
            ax.plot(x, values.mean(0), color=COLOUR[method], ls=style, marker=MARKER[method])
            ends.append((values.mean(0)[-1], LABEL[method], COLOUR[method]))
        if name in paper:
            ax.axhline(paper[name], color=GREY, ls=":", lw=1.2)
            ends.append((paper[name], "paper, at the end", GREY))
        ax.set_ylim(0, 1.15 * max(end for end, *_ in ends))
        ax.set(title=name, xlabel="tasks learned", ylabel="neurons")
        ax.xaxis.get_major_locator().set_params(integer=True)
        end_labels(ax, ends, x=x[-1], gap=0.12)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    return fig


def record_frame(
    accuracy: Sequence[Sequence[Sequence[float]]], tasks: Sequence[str], title: str
) -> Figure:
    """R, the mean over seeds, beside the last accuracies, every seed a dot."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.5))
    n = len(tasks)
    mean = [np.mean([R[i] for R in accuracy], axis=0) for i in range(n)]
    if n <= 10:
        matrix(left, mean, tasks, title)
    else:  # too many for numbers
        values = np.full((n, n), np.nan)
        for i, row in enumerate(mean):
            values[i, : i + 1] = row
        left.imshow(values, vmin=0, vmax=1.25, cmap="Blues")
        left.set(title=title, xlabel="tested on", ylabel="after learning")
    values = 100 * np.array([R[-1] for R in accuracy])
    right.bar(range(n), values.mean(0), color=BLUE, alpha=0.3)
    right.plot(np.tile(np.arange(n), len(values)), values.ravel(), ".", color=BLUE)
    right.set(xlabel="tested on", ylim=(0, 103), xticks=range(n))
    right.set_xticklabels(tasks if n <= 10 else [])
    right.set_title(f"after the last task: mean {values.mean():.1f} %")
    return fig


# ----------------------------------------------------------------------- 11 what holds

VERDICTS = {  # a verdict's colour and mark
    "holds": (GREEN, "o"),
    "holds in part": (SKY, "D"),
    "depends on the regime": (ORANGE, "s"),
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
    return fig


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


# -------------------------------------------------------------------------- appendices


def regime(name: str) -> list[dict[str, Any]]:
    """The search on validation data: one entry a setting, in the order tried.

    A field that Config got later had its default in the earlier rows.
    """
    path = RESULTS / "regime" / f"{name}.jsonl"
    default = json.loads(json.dumps(dataclasses.asdict(core.Config())))
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        config = default | row["config"]
        key = json.dumps([row["method"], row["tasks"], config], sort_keys=True)
        entry = {"method": row["method"], "tasks": row["tasks"], "config": config}
        entry = found.setdefault(key, entry | {"accuracy": {}, "hidden": {}, "s": {}})
        entry["accuracy"][row["seed"]] = 100 * row["accuracy"]
        entry["hidden"][row["seed"]] = row["hidden"]
        entry["s"][row["seed"]] = row["seconds"]
    return list(found.values())


class Change(NamedTuple):
    """Two settings of the search that differ in one field, and what that changed."""

    scenario: str
    method: str
    field: str  # "lr" where both learning rates change together
    before: Any
    after: Any
    points: list[float]  # a seed

    def __str__(self) -> str:
        return f"{self.field} {setting(self.before)} → {setting(self.after)}"


def setting(value: Any) -> str:
    """A field's value as one would type it."""
    if isinstance(value, list | tuple):
        return ",".join(f"{x:g}" for x in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def one_field_changes(name: str) -> list[Change]:
    """What leaving a method's preset in one field changed, in the search so far.

    Two settings tell if they differ in that field only and one of them has the preset's
    value there. The other fields may differ from the preset: a seed's points are the
    mean over all such pairs.
    """
    found: dict[tuple[str, ...], tuple[Any, Any, dict[int, list[float]]]] = {}
    for a, b in itertools.combinations(regime(name), 2):
        seeds = sorted(set(a["accuracy"]) & set(b["accuracy"]))
        same = (a["method"], a["tasks"]) == (b["method"], b["tasks"])
        odd = [k for k in a["config"] if a["config"][k] != b["config"][k]]
        if not seeds or not same or not (len(odd) == 1 or odd == ["lr_mu", "lr_rho"]):
            continue
        default = getattr(core.preset(name, a["method"]), odd[0])
        default = list(default) if isinstance(default, tuple) else default
        if b["config"][odd[0]] == default:  # from what the preset has, to the other
            a, b = b, a
        before, after = a["config"][odd[0]], b["config"][odd[0]]
        if before != default:
            continue
        field = "lr" if len(odd) == 2 else odd[0]
        key = (field, a["method"], setting(after))
        _, _, points = found.setdefault(key, (before, after, {}))
        for s in seeds:
            points.setdefault(s, []).append(b["accuracy"][s] - a["accuracy"][s])
    changes = [
        Change(name, method, field, a, b, [float(np.mean(of)) for of in points.values()])
        for (field, method, _), (a, b, points) in found.items()
    ]
    return sorted(changes, key=lambda change: change.field)


def search_path(found: dict[str, Sequence[tuple[float, str, bool]]]) -> Figure:
    """Accuracy of each setting in the order tried; the best so far, and the presets."""
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.5 + 2.2 * rows), squeeze=False)
    for ax, (name, tried) in zip(axes.flat, found.items(), strict=False):
        values = np.array([accuracy for accuracy, *_ in tried])
        x = np.arange(1, len(tried) + 1)
        ax.step(x, np.maximum.accumulate(values), where="post", color="#bbbbbb", lw=1.2)
        for place, (accuracy, method, chosen) in zip(x, tried, strict=True):
            ax.plot(
                place,
                accuracy,
                MARKER[method],
                color=COLOUR[method],
                mec=INK if chosen else "white",
                mew=1.6 if chosen else 0.4,
                ms=8 if chosen else 5,
            )
        ax.set(title=name, xlabel="setting, in the order tried", ylabel="accuracy, %")
        ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    seen = dict.fromkeys(m for tried in found.values() for _, m, _ in tried)
    handles = [
        mpl.lines.Line2D([], [], ls="", marker=MARKER[m], color=COLOUR[m], label=LABEL[m])
        for m in seen
    ]
    ring = {"marker": "o", "mfc": "white", "mec": INK, "mew": 1.6, "ms": 8}
    handles.append(mpl.lines.Line2D([], [], ls="", label="became a preset", **ring))
    fig.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)
    return fig


def one_change(rows: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """A row a change of one setting: the differences in accuracy, every seed a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 0.9 + 0.235 * len(rows)))
    for y, (_, values) in enumerate(rows):
        ax.axhline(y, color="#eeeeee", lw=0.8, zorder=0)
        colour = BLUE if np.mean(values) > 0 else VERMILION
        ax.barh(y, np.mean(values), color=colour, alpha=0.35, height=0.6)
        ax.plot(values, [y] * len(values), "o", color=colour, ms=4.5)
    ax.axvline(0, color=INK, lw=0.9)
    ax.set_yticks(range(len(rows)), [text for text, _ in rows], fontsize=8.5)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="change in accuracy, points")
    return fig


def step_ratios(cases: Sequence[dict[str, Any]]) -> Figure:
    """A panel a kind of network: time of a step, plain layers' being 1."""
    kinds = list(dict.fromkeys(case["kind"] for case in cases))
    names = [n for n in cases[0]["ratio"] if n != "plain"]
    fig, axes = plt.subplots(
        1, len(kinds), figsize=(WIDTH, 1.1 + 0.36 * len(names)), sharey=True, squeeze=False
    )
    for ax, kind in zip(axes.flat, kinds, strict=True):
        chosen = [case for case in cases if case["kind"] == kind]
        for k, case in enumerate(chosen):
            y = np.arange(len(names)) + 0.2 * (k - (len(chosen) - 1) / 2)
            ax.plot(
                [case["ratio"][n] for n in names],
                y,
                "os^Dv"[k % 5],
                ls="",
                color=TASK_COLOURS[k],
                label=str(case["hidden"]),
            )
        ax.axvline(1, color=INK, lw=0.9)
        ax.set_yticks(range(len(names)), names)
        ax.set(title=kind, xlabel="time of a step, plain = 1", xlim=(0, None))
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(axis="x", color="#e4e4e4")
        ax.legend(fontsize=8, loc="best")
    return fig


def cost_growth(growth: dict[str, Sequence[dict[str, float]]]) -> Figure:
    """Seconds of a run against what it grows with; dashed: in proportion."""
    fig, axes = plt.subplots(1, len(growth), figsize=(WIDTH, 2.6))
    names = {"neurons": "neurons a layer", "samples": "images a task"}
    for ax, (name, rows) in zip(axes, growth.items(), strict=True):
        x, y = ([row[key] for row in rows] for key in ("n", "cpu_seconds"))
        ax.plot([0, x[-1]], [0, y[-1]], color=GREY, ls="--", lw=1)
        ax.plot(x, y, color=BLUE, marker="o")
        ax.set(xlabel=names.get(name, name), xlim=(0, None), ylim=(0, None))
    axes[0].set_ylabel("CPU seconds")
    return fig


def run_minutes(found: dict[str, dict[str, Sequence[float]]]) -> Figure:
    """A group a scenario, a row a method: minutes a run, every seed a dot."""
    rows = [(name, m) for name, methods in found.items() for m in methods]
    fig, ax = plt.subplots(figsize=(WIDTH, 0.9 + 0.25 * len(rows)))
    for y, (name, method) in enumerate(rows):
        values = found[name][method]
        ax.barh(y, np.mean(values), color=COLOUR[method], alpha=0.35, height=0.7)
        ax.plot(
            values, [y] * len(values), MARKER[method], color=COLOUR[method], ms=4, mec=INK, mew=0.3
        )
    ax.set_yticks(range(len(rows)), [f"{name}: {LABEL[m]}" for name, m in rows], fontsize=8.5)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="minutes a run", xlim=(0, None))
    return fig


# ----------------------------------------------------------------------------- README


def result(scenario: str = "ta-smnist") -> Figure:
    """The README's figure: every recorded method of a scenario beside the paper's."""
    found = {m: runs.load_records(RESULTS, scenario, m) for m in core.METHODS}
    accuracy = {
        m: {r.seed: core.average_accuracy(r.accuracy) for r in records}
        for m, records in found.items()
        if records
    }
    paper = {p.method: p.accuracy for p in runs.PAPER[scenario]}
    fig = methods_accuracy(accuracy, paper)
    fig.set_size_inches(WIDTH * 1.15, 3.4)
    return fig


def draw_result() -> None:
    """Draw it again from the records (build.py --store does)."""
    use_style()
    target = runs.RESULTS.parent / "images" / "result.png"
    result().savefig(target, dpi=110, bbox_inches="tight")
