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

from .page import FIGURE, PICTURE, UNDER, Page, _caption, _size, _uri, png

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
    parts = _player_parts(pictures, labels, alt, start)
    parts |= {"SPEED": str(speed), "CAPTION": html.escape(_caption(caption, source))}
    words = f"[player: {alt}; {len(labels)} frames] {_caption(caption, source)}"
    display(Page(_fill(PLAYER, parts), words))


def _player_parts(
    pictures: Sequence[bytes], labels: Sequence[str], alt: str, start: int
) -> dict[str, str]:
    """What stands in a player where its template has a name in capitals."""
    uris = [_uri(p) for p in pictures]
    others = [*uris[:start], "", *uris[start + 1 :]]  # the first is in the page already
    digest = hashlib.sha256("".join([*uris, *labels]).encode()).hexdigest()
    width, height = _size(pictures[0])
    return {
        "FIGURE": FIGURE,
        "PICTURE": PICTURE,
        "UNDER": UNDER,
        "STYLE": BUTTON,
        "LAST": str(len(pictures) - 1),
        "START": str(start),
        "WIDTH": str(width),
        "HEIGHT": str(height),
        "ID": f"rcl-{digest[:12]}",
        "LABELS": _script(labels),
        "ALTS": _script([f"{alt}: {x}" for x in labels]),
        "NAME": html.escape(f"choose a frame: {alt}"),
        "LABEL": html.escape(labels[start]),
        "ALT": html.escape(f"{alt}: {labels[start]}"),
        "FIRST": uris[start],
        "FRAMES": _script(others),
    }


def _script(values: Sequence[str]) -> str:
    """A list for the player's script; a "<" would end the script early."""
    return json.dumps(list(values), ensure_ascii=False).replace("<", "\\u003c")


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
