"""Frames behind a slider and a play button; live sliders where a kernel listens."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from IPython.display import display
from matplotlib.figure import Figure

from .page import FIGURE, Page, numbered, under
from .vector import picture, png

DENSITY = 90  # points an inch of a frame
LARGEST_FRAME = 25_000  # characters
SHORT = 32  # characters of a label that stands beside the slider; a longer one is below it

PLAYER = """<figure class="rcl-player" id="ID" FIGURE>
<div data-frame>FIRST</div>
<div style="display:flex;flex-wrap:wrap;gap:0.5em;align-items:center;margin-top:0.3em">
<button type="button" data-step="-1" aria-label="one step back" STYLE>◀</button>
<button type="button" data-play aria-label="play" STYLE>Play</button>
<button type="button" data-step="1" aria-label="one step on" STYLE>▶</button>
<input type="range" min="0" max="LAST" value="START" step="1" aria-label="NAME"
 style="flex:1 1 9em;min-width:7em;max-width:24em">
<output aria-live="polite" style="flex:1 1 ROOM">LABEL</output></div>
CAPTION
<script>(function(){var b=document.getElementById("ID");if(!b||b.ready)return;b.ready=1;
var f=FRAMES,l=LABELS,i=b.querySelector("[data-frame]"),r=b.querySelector("input"),
o=b.querySelector("output"),p=b.querySelector("[data-play]"),t=null;f[START]=i.innerHTML;
function go(k){k=(k+f.length)%f.length;r.value=k;i.innerHTML=f[k];
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
    frames: Iterable[Figure],
    labels: Sequence[str],
    alt: str,
    caption: str = "",
    source: str = "computed here",
    start: int = 0,
    speed: int = 900,
) -> None:
    """Pre-rendered frames behind a range input and a play button; needs no kernel.

    labels: one a frame, shown beside the slider and added to the frame's alt text; keep
    the frames to one size and to thirty at most. start: the frame shown first.
    """
    each, sizes = [], set()
    for k, frame in enumerate(frames):  # one after another: each is closed before the next
        label = labels[k] if k < len(labels) else ""
        sizes.add(tuple(frame.get_size_inches()))
        each.append(picture(frame, f"{alt}: {label}", DENSITY, LARGEST_FRAME))
    if len(sizes) > 1:
        raise ValueError("frames of different sizes jump: draw them with one figsize.")
    caption = numbered("Figure", caption, source)
    words = f"[player: {alt}; {len(labels)} frames] {caption}"
    display(Page(player(each, labels, alt, caption, start, speed), words))


def player(
    frames: Sequence[str],
    labels: Sequence[str],
    alt: str,
    caption: str,
    start: int = 0,
    speed: int = 900,
) -> str:
    """Markup of frames that are markup themselves; the caption has its number already."""
    if len(frames) != len(labels) or not frames:
        raise ValueError(f"{len(frames)} frames, {len(labels)} labels: one each.")
    parts = _player_parts(frames, labels, alt, start % len(frames))
    return _fill(PLAYER, parts | {"SPEED": str(speed), "CAPTION": under(caption)})


def _player_parts(
    frames: Sequence[str], labels: Sequence[str], alt: str, start: int
) -> dict[str, str]:
    """What stands in a player where its template has a name in capitals."""
    others = [*frames[:start], "", *frames[start + 1 :]]  # the first is in the page already
    digest = hashlib.sha256("".join([*frames, *labels]).encode()).hexdigest()
    return {
        "FIGURE": FIGURE,
        "STYLE": BUTTON,
        "LAST": str(len(frames) - 1),
        "START": str(start),
        "ID": f"rcl-{digest[:12]}",
        "LABELS": _script(labels),
        "ROOM": "8em" if max(map(len, labels)) <= SHORT else "100%",
        "NAME": html.escape(f"choose a frame: {alt}"),
        "LABEL": html.escape(labels[start]),
        "FIRST": frames[start],
        "FRAMES": _script(others),
    }


def _script(values: Sequence[str]) -> str:
    """A list for the player's script, which "</script" and "<!--" would end early."""
    text = json.dumps(list(values), ensure_ascii=False)
    return text.replace("</", "<\\/").replace("<!", "<\\!")


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
