"""A figure as markup: SVG where that is small, else a picture of twice the screen's points.

The SVG is drawn for a white ground. A dark page turns lightness round and keeps the hues
(book.css), so that no figure needs to be drawn twice.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

SCREEN = 110  # points an inch at which figures are shown
LARGEST = 60_000  # characters of an SVG; with more marks a picture is smaller
STYLE = "max-width:100%;height:auto;background:#fff;border-radius:4px"
FONT = "DejaVu Sans,Verdana,sans-serif"  # of one width, so that labels end where they were drawn
LEGIBLE = 4.5  # contrast of text


def picture(fig: Figure, alt: str, dpi: int = SCREEN, largest: int = LARGEST) -> str:
    """A figure as an SVG, or as an image if that is too large; closes it."""
    width, height = (round(dpi * inches) for inches in fig.get_size_inches())
    size = f"width='{width}' height='{height}'"
    words = html.escape(alt)
    drawn = svg(fig)
    if len(drawn) <= largest:
        plt.close(fig)
        return f"<svg role='img' aria-label='{words}' {size} style='{STYLE}' {drawn}"
    data = base64.b64encode(png(fig, 2 * dpi)).decode()
    return f"<img src='data:image/png;base64,{data}' alt='{words}' {size} style='{STYLE}'/>"


def png(fig: Figure, dpi: int = SCREEN) -> bytes:
    """A figure as a small PNG (256 colours, no date, no program's name); closes it."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi)
    plt.close(fig)
    drawn = Image.open(buffer).convert("RGB")
    few = drawn.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def svg(fig: Figure) -> str:
    """What follows `<svg`: no date, no style of a whole page, no name that another figure has."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "figure"}):
        fig.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") + 4 :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r'^[^>]*(viewBox="[^"]*")[^>]*>', rf"{NAMES} \1>", text, count=1)
    text = _own_names(_marks(_small(text)))
    return re.sub(r"<text[^>]*>", _legible, text).replace('"', "'")


NAMES = (
    'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    f' stroke-linejoin="round" image-rendering="pixelated" font-family="{FONT}"'
)


def _small(text: str) -> str:
    """Two digits behind a point are a hundredth of a point; names of groups say nothing."""
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), text)
    text = re.sub(r"font-family: [^;\"]*;?|transform=\"rotate\(-0 [^\"]*\"", "", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    return re.sub(r'style="[^"]*"', lambda m: re.sub("([:;]) ", r"\1", m[0]), text).strip()


def _marks(text: str) -> str:
    """Marks that all look alike say so once, where they are defined."""
    for name in dict.fromkeys(re.findall(r'<use xlink:href="#(\w+)"', text)):
        use = rf'(<use xlink:href="#{name}"[^>]*?) style="([^"]*)"'
        if len({look for _, look in re.findall(use, text)}) == 1:
            look = re.search(use, text)[2]  # type: ignore[index]
            text = re.sub(rf'(<path id="{name}"[^>]*?)( style="[^"]*")?/>', r"\1/>", text)
            text = text.replace(f'<path id="{name}"', f'<path id="{name}" style="{look}"')
            text = re.sub(use, r"\1", text)
    return text


def _own_names(text: str) -> str:
    """Names that something refers to, made this figure's own; the others go."""
    own = "f" + hashlib.sha256(text.encode()).hexdigest()[:6]
    wanted = dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', text))
    names = {name: f"{own}{i}" for i, name in enumerate(wanted)}
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", text)
    text = re.sub(r'((?:href="|url\()#)(\w+)', lambda m: m[1] + names[m[2]], text)
    return re.sub(r"<g\s+>", "<g>", text).replace("<defs></defs>", "")


def _legible(tag: re.Match[str]) -> str:
    """Text in a colour that is darker where it could not be read on white."""
    return re.sub(r"fill:\s?(#[0-9a-f]{6})", lambda m: f"fill:{readable(m[1])}", tag[0])


def readable(colour: str) -> str:
    """The colour, or its darker brother with enough contrast to white; white stays."""
    r, g, b = to_rgb(colour)
    if (r, g, b) == (1, 1, 1):  # within a coloured field
        return colour
    while contrast((r, g, b)) < LEGIBLE:
        r, g, b = (0.97 * part for part in (r, g, b))
    return mpl.colors.to_hex((r, g, b))


def contrast(
    colour: tuple[float, float, float], ground: tuple[float, float, float] = (1, 1, 1)
) -> float:
    """The ratio that the web's rules for legible text ask for."""
    low, high = sorted(map(_light, (colour, ground)))
    return (high + 0.05) / (low + 0.05)


def _light(colour: tuple[float, float, float]) -> float:
    parts = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in colour)
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
