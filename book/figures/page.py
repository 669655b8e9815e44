"""What a chapter shows: figures, tables and sentences, and the data it runs on."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from IPython.display import display
from matplotlib.figure import Figure

from rclcpb import records
from rclcpb.files import RclCpbError
from rclcpb.images import Images, data_root, load_images
from rclcpb.presets import SMALL, make_scenario
from rclcpb.records import Record
from rclcpb.scenarios import Scenario
from rclcpb.tables import format_table

from .style import next_number
from .vector import picture

SOURCES = ("computed here", "recorded run", "paper's number", "drawing")


def results(here: Path) -> Path:
    """The recorded runs: the folder $RCLCPB_RESULTS, `here` or above it; else the book's own."""
    if not (given := os.environ.get("RCLCPB_RESULTS")):
        return records.RESULTS
    for folder in (here, *here.parents):  # a notebook's folder is not where Jupyter started
        if (folder / given).is_dir():
            return folder / given
    raise RclCpbError(
        f"RCLCPB_RESULTS names {given}, which is no folder in {here} or above: record something"
        f" there first (rclcpb run ta-smnist-5k --out {given}), or unset it to see the book's runs."
    )


RESULTS = results(Path.cwd())


class Page:
    """A piece of HTML for the page, and plain words for where there is no HTML."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words

    def _repr_html_(self) -> str:
        return self.code

    def __repr__(self) -> str:
        return self.words


def numbered(kind: str, caption: str, source: str) -> str:
    """The caption with its number and where its numbers come from; neither is left out."""
    if not source.startswith(SOURCES):
        raise ValueError(f"source={source!r}: must start with one of {SOURCES}.")
    return f"{next_number(kind)}. {caption.rstrip()} ({source})"


FIGURE = 'style="margin:0.8em 0;max-width:100%"'
UNDER = 'style="font-size:0.9em;line-height:1.4;margin-top:0.3em"'


def under(caption: str) -> str:
    """A caption in HTML, its number in bold."""
    number, words = caption.split(". ", 1)
    return f"<figcaption {UNDER}><b>{number}.</b> {html.escape(words)}</figcaption>"


def show(fig: Figure, alt: str, caption: str = "", source: str = "computed here") -> None:
    """Display a figure with alt text and a numbered caption that names its source.

    source: "computed here", `recorded(records)`, "paper's number", or a mix of them in
    words that starts with one of these; "drawing" for one that shows no data.
    """
    caption = numbered("Figure", caption, source)
    code = f'<figure class="rcl-figure" {FIGURE}>{picture(fig, alt)}{under(caption)}</figure>'
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
    rows, caption = [[str(c) for c in row] for row in rows], numbered("Table", caption, source)
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
        f"</table></div>{under(caption)}</figure>"
    )
    words = format_table([tuple(row) for row in rows], tuple(header))
    display(Page(code, f"{words}\n{caption}"))


def say(text: str) -> None:
    """Display a sentence made of computed numbers, as a paragraph of the page."""
    style = "margin:0.6em 0;padding-left:0.8em;border-left:3px solid #767676"
    code = f'<p class="rcl-say" style="{style}">{html.escape(text)}</p>'
    display(Page(code, text))


def recorded(records: Sequence[Record]) -> str:
    """Which runs a figure shows: 'recorded run: seeds 0–4, 2026-11-16'."""
    seeds = sorted({r.seed for r in records})
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    many = f"{seeds[0]}–{seeds[-1]}" if whole else ", ".join(map(str, seeds))
    dates = sorted({r.started[:10] for r in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"recorded run{'s: seeds' if len(seeds) > 1 else ': seed'} {many}, {when}"


def full() -> bool:
    """RCLCPB_MODE=full asks for all of MNIST, where it is on disk."""
    return os.environ.get("RCLCPB_MODE") == "full" and (data_root() / "mnist.npz").exists()


def scenario(name: str, seed: int = 0) -> Scenario:
    """The scenario on the embedded 5,000 digits, or on all of MNIST in full mode."""
    if os.environ.get("RCLCPB_MODE") == "full" and not full():
        print(
            "RCLCPB_MODE=full, but MNIST is not on disk: going on with 5,000 digits."
            " `python rclcpb_core.py data mnist --download` gets it."
        )
    return make_scenario(name if full() else name + SMALL, seed)


def images() -> Images:
    """The digits themselves: 4,000 + 1,000 of them, or all of MNIST in full mode."""
    return load_images("mnist" if full() else "mnist5k")
