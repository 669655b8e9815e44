"""Every figure of the book: what chapters share is here, a chapter's own in its file.

    use_style("3")                         one look for all figures; chapter 3's numbers
    show(fig, alt, caption)                a figure with alt text and a caption
    table(header, rows, caption)           a table with a caption
    say(text)                              a computed sentence, as a paragraph
    slider(frames, labels, alt, caption)   frames behind a slider and a play button
    live(function, **widgets)              an ipywidgets slider where a kernel listens
    scenario("ta-smnist")                  what the chapters run: 5,000 digits, or all

Everything `show`, `table` and `slider` write is plain HTML with the pictures inside: it
looks the same in Jupyter, in Colab and on a page without a kernel, and asks no other
host for anything. A chapter's own: `from figures import pruning as draw`.
"""

from .page import RESULTS, full, images, recorded, say, scenario, show, table
from .player import kernel_listens, live, slider
from .playground import one_weight
from .style import COLOUR, LABEL, MARKER, dots, end_labels, matrices, matrix, use_style
from .vector import picture, png

__all__ = [
    "COLOUR",
    "LABEL",
    "MARKER",
    "RESULTS",
    "dots",
    "end_labels",
    "full",
    "images",
    "kernel_listens",
    "live",
    "matrices",
    "matrix",
    "one_weight",
    "picture",
    "png",
    "recorded",
    "say",
    "scenario",
    "show",
    "slider",
    "table",
    "use_style",
]
