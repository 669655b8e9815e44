"""A recorded run's network, drawn a step at a time: what is freed, what is added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import rclcpb_core as core
from rclcpb.records import Record

COLOURS = ("currentColor", "#D55E00", "#009E73", "#CC79A7", "#0072B2")  # by the task of birth
INPUTS = 784
LAYERS = ((190, 20), (445, 20))  # where a layer's block begins, dots a row
STEP = 9  # from dot to dot
TOP = 60
HEAD = (
    "<svg class='rcl-growth' role='img' aria-label='{}' viewBox='0 0 720 {}' font-size='13'"
    " fill='currentColor' stroke-linecap='round' style='width:100%;min-width:480px'>"
)


def growth_frames(record: Record) -> tuple[list[str], list[str]]:
    """Drawings and their labels: task 1, then two a task, weights freed and neurons added."""
    drawn = list(_frames(record))
    return [drawing for drawing, _ in drawn], [label for _, label in drawn]


def _below(record: Record) -> int:
    """Where the drawing has room under the largest layer."""
    rows = max(-(-n // wide) for n, (_, wide) in zip(record.hidden[-1], LAYERS, strict=True))
    return TOP + STEP * max(rows, 2 * len(record.tasks)) + 24


def _frames(record: Record) -> Iterator[tuple[str, str]]:
    births: list[list[int]] = [[], []]  # per layer, neurons that each task brought
    below = _below(record)
    for t, name in enumerate(record.tasks):
        if t:
            label = f"task {t + 1}, digits {name}: {_freed(record, t)}"
            yield _drawing(births, label, below, _bars(record, t, below)), label
        for layer, of in enumerate(births):
            of.append(record.added[t][layer] if t else record.hidden[0][layer])
        label = f"task {t + 1}, digits {name}: "
        label += _account(record, t) if t else f"begins with {_sizes(record, 0)} neurons"
        yield _drawing(births, label, below), label


def _sizes(record: Record, t: int) -> str:
    return " and ".join(str(n) for n in record.hidden[t])


def _columns(record: Record, t: int) -> tuple[int, int]:
    """Weights into one neuron of each layer when task t arrives."""
    return INPUTS, record.hidden[t - 1][0]


def _shares(record: Record, t: int) -> list[float]:
    """Of each layer's weights, the part that starts afresh before task t."""
    of = zip(record.pruned[t], _columns(record, t), record.hidden[t - 1], strict=True)
    return [pruned / (columns * neurons) for pruned, columns, neurons in of]


def _freed(record: Record, t: int) -> str:
    first, second = _shares(record, t)
    return f"{100 * first:.0f} % and {100 * second:.0f} % of the weights start afresh"


def _account(record: Record, t: int) -> str:
    """Eq. 7 with this run's numbers, layer 1."""
    shared, added = record.shared[t][0], record.added[t][0]
    freed = core.pruned_neurons(record.pruned[t][0], INPUTS)
    required = record.hidden[0][0]
    return (
        f"layer 1 needs {required}, shares {shared}, has {freed:.1f} freed and adds {added};"
        f" now {_sizes(record, t)} neurons"
    )


def _drawing(births: Sequence[Sequence[int]], label: str, below: int, bars: str = "") -> str:
    blocks = [_block(x, wide, of) for (x, wide), of in zip(LAYERS, births, strict=True)]
    names = ("28 × 28 pixels", "hidden layer 1", "hidden layer 2", "outputs")
    places = (20, LAYERS[0][0], LAYERS[1][0], 655)
    texts = [f"<text x='{x}' y='24'>{word}</text>" for x, word in zip(places, names, strict=True)]
    pixels = (
        f"<rect x='20' y='{TOP - 4}' width='110' height='110' fill='none' stroke='currentColor'/>"
    )
    outputs = _dots([(662, TOP + 18 * k) for k in range(2 * len(births[0]))], "currentColor")
    lines = [
        f"<path d='M{a} {TOP + 50}H{b}' stroke='currentColor' opacity='.5'/>"
        for a, b in ((132, 182), (378, 437), (633, 652))
    ]
    head = HEAD.format(label, below + 50)
    return head + "".join([*texts, pixels, *lines, *blocks, outputs, bars]) + "</svg>"


def _block(x: int, wide: int, births: Sequence[int]) -> str:
    """A layer: a dot a neuron, in the colour of the task that brought it."""
    drawn, place = [], 0
    for task, count in enumerate(births):
        cells = range(place, place + count)
        dots = [(x + STEP * (n % wide), TOP + STEP * (n // wide)) for n in cells]
        drawn.append(_dots(dots, COLOURS[task % len(COLOURS)]))
        place += count
    return "".join(drawn)


def _dots(places: Sequence[tuple[int, int]], colour: str) -> str:
    if not places:
        return ""
    path = "".join(f"M{x} {y}h0" for x, y in places)
    return f"<path d='{path}' stroke='{colour}' stroke-width='7' fill='none'/>"


def _bars(record: Record, t: int, below: int) -> str:
    """Under each layer, how many of its weights start afresh."""
    drawn = ""
    for (x, _), share in zip(LAYERS, _shares(record, t), strict=True):
        box = f"<rect x='{x - 4}' y='{below}' height='14'"
        drawn += f"{box} width='180' fill='none' stroke='currentColor'/>"
        drawn += f"{box} width='{180 * share:.1f}' fill='#0072B2'/>"
        drawn += f"<text x='{x - 4}' y='{below + 35}'>"
        drawn += f"{100 * share:.0f} % of its weights afresh</text>"
    return drawn
