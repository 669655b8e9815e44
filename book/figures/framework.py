"""The method as one drawing in the page's own colours; its parts lead to their chapters."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
STEPS = (  # chapter, what happens, in which words of the paper
    ("03_vcl", "1. Remember", ("the posterior becomes", "the prior")),
    ("04_pruning", "2. Prune", ("weights with |μ| / σ < β", "start afresh (Eq. 4)")),
    ("05_growing", "3. Grow", ("add what cannot be", "shared (Eqs. 5 to 7)")),
    ("03_vcl", "4. Train", ("on the task's data,", "with Eq. 8")),
    ("06_single_head", "5. Replay", ("old outputs come back,", "stored images are fit")),
)
WIDE = 196  # of a step
TOP = 118  # where the networks begin


def framework(page: str = "{}.html") -> str:
    """The drawing; `page` makes a chapter's address of its name."""
    parts = [_data(page)]
    for i, (chapter, title, words) in enumerate(STEPS):
        x = 12 + i * WIDE
        texts = _text(x + 90, 24 + TOP - 40, title, "font-weight='bold' font-size='19'")
        for k, line in enumerate(words):
            texts += _text(x + 90, TOP + 168 + 19 * k, line)
        frame = f"<rect x='{x}' y='{TOP - 38}' width='180' height='236' rx='8'/>"
        parts.append(_link(page, chapter, f"{title}: {' '.join(words)}", frame + texts))
        parts.append(_network(x + 22, i))
        if i:
            parts.append(_arrow(x - 15, TOP + 75, x - 2, TOP + 75))
    bottom = TOP + 218
    parts.append(_path(f"M{12 + 4 * WIDE + 90} {TOP + 198}V{bottom}H102V{TOP + 202}", "6 4", True))
    parts.append(_text(500, bottom + 18, "the network goes on to the next task"))
    return HEAD + "".join(parts) + "</svg>"


HEAD = (
    "<svg class='rcl-framework' xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1000 362'"
    " width='1000' height='362' role='group' font-size='15.5' fill='currentColor'"
    " aria-label='The method: a task goes through five steps; each leads to its chapter'>"
    "<defs><marker id='rcl-tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7'"
    " markerHeight='7' orient='auto'><path d='M0 0L8 4L0 8z' fill='currentColor'/></marker></defs>"
)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x}' y='{y}' text-anchor='middle' {more}>{html.escape(words)}</text>"


def _path(d: str, dashes: str = "", tip: bool = False) -> str:
    more = f" stroke-dasharray='{dashes}'" if dashes else ""
    more += " marker-end='url(#rcl-tip)'" if tip else ""
    return f"<path d='{d}' fill='none' stroke='currentColor' stroke-width='1.4'{more}/>"


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return _path(f"M{x} {y}L{to_x} {to_y}", tip=True)


def _link(page: str, chapter: str, label: str, inside: str) -> str:
    return f"<a href='{page.format(chapter)}' aria-label='{html.escape(label)}'>{inside}</a>"


def _data(page: str) -> str:
    """The task's data above: some are stored, the rest is trained on."""
    train, replay = 12 + 3 * WIDE + 90, 12 + 4 * WIDE + 90
    box = "<rect x='12' y='8' width='180' height='40' rx='8'/>"
    words = box + _text(102, 33, "data of task t, D_t")
    return (
        _link(page, "01_forgetting", "data of task t", words)
        + _path(f"M192 28H{replay}V{TOP - 41}", tip=True)
        + _path(f"M{train} 28V{TOP - 41}", tip=True)
        + _text(train - 84, 21, "all but the stored ones")
        + _text(replay - 84, 21, "a few are stored, CT_t")
    )


def _network(x: float, step: int) -> str:
    """A small network as it stands at a step: what is fresh, shared, new."""
    columns = [4, 5 if step >= 2 else 4, 4 if step >= 2 else 3, 4 if step >= 3 else 2]
    spots = [
        [(x + 45 * c, TOP + 12 + 132 * (k + 0.5) / n) for k in range(n)]
        for c, n in enumerate(columns)
    ]
    lines, dots = "", ""
    for c, (left, right) in enumerate(pairwise(spots)):
        for i, a in enumerate(left):
            for k, b in enumerate(right):
                lines += _weight(a, b, _kind(step, c, i, k, columns))
    for c, column in enumerate(spots):
        for k, (px, py) in enumerate(column):
            fill, edge = _neuron(step, c, k, columns)
            dots += f"<circle cx='{px:.0f}' cy='{py:.1f}' r='6.5' fill='{fill}' stroke='{edge}'/>"
    return f"<g stroke-width='1.6' pointer-events='none'>{lines}{dots}</g>"


def _kind(step: int, c: int, i: int, k: int, columns: Sequence[int]) -> str:
    """Is a weight old, fresh, or new?"""
    if step >= 2 and (_added(c, i, columns) or _added(c + 1, k, columns)):
        return "new"
    return "fresh" if step in (1, 2) and c < 2 and (3 * i + 2 * k + c) % 5 == 0 else "old"


def _added(c: int, k: int, columns: Sequence[int]) -> bool:
    return c in (1, 2) and k == columns[c] - 1


def _weight(a: tuple[float, float], b: tuple[float, float], kind: str) -> str:
    look = {
        "old": "stroke='currentColor' opacity='.35' stroke-width='1'",
        "fresh": f"stroke='{BLUE}' stroke-dasharray='4 3'",
        "new": f"stroke='{ORANGE}' opacity='.7' stroke-width='1'",
    }[kind]
    return f"<path d='M{a[0]:.0f} {a[1]:.1f}L{b[0]:.0f} {b[1]:.1f}' {look}/>"


def _neuron(step: int, c: int, k: int, columns: Sequence[int]) -> tuple[str, str]:
    """Fill and edge of a neuron: new ones orange, shared ones green."""
    if step >= 2 and (_added(c, k, columns) or (c == 3 and k >= 2)):
        return ORANGE, ORANGE
    if step == 2 and c in (1, 2) and k % 2 == 0:
        return GREEN, GREEN
    return "var(--pst-color-background, #fff)", "currentColor"
