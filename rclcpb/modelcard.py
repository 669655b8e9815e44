"""A model card in Markdown, beside every kept network: what it is, what it may be used for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rclcpb.files import replacing

CARD = """\
# {title}

A Bayesian network that learned {many} one after another ({scenario}, seed {seed}). Each weight
is a Gaussian: asked several times, the network says how sure it is.

| | |
|---|---|
| reads | {reads} |
| answers | {answers} |
| hidden neurons | {sizes} |
| numbers learned | {parameters:,}, a mean and a width for each weight |
| images stored while it learned | {stored}; none of them is in the file |
| training data | SHA-256 `{data}` |
| made with | {versions} |

## How right it is

On the test data of its tasks, after the last one{early}.

| task | labels | accuracy | chance |
|---|---|---|---|
{rows}
{evaluation}
## How to use it

```
rclcpb predict {file} IMAGES.npz --out answers.csv
rclcpb export {file} --keep 0.1 --to onnx
```

## What it is not for

It knows the classes above and no others: an image of anything else is answered with one of them.
Its doubt (`entropy`, `mutual_information`) is often, not always, higher there; measure it on your
own data before you rely on it. Earlier tasks are partly forgotten, as the table says.
"""
FITTED = """
These are the run's: before each answer it fits a copy of the network to the task's stored
images. The network in the file is the one without that fit and may be less right.
"""
CLASSIFIER = """\
# A classifier of your own data

A Bayesian network that learns one task after another. It reads {reads} and answers with one of
{classes}.

```
{summary}
```

The accuracy is that on the data it was given to test on, where it was.

**In the file are samples of its training data**: the {stored} that it has stored to learn on with.
Give it to nobody who may not see them; `rclcpb export {file}` writes the network alone.

```
rclcpb predict {file} SAMPLES.npz --out answers.csv
```
"""


def model_card(file: str, title: str, about: dict[str, Any]) -> str:
    """The card of a kept network, from what is known `about` it."""
    heads, tasks = about["labels"], about["tasks"]
    multi = about["heads"] == "multi"
    labels = heads if multi else [heads[0]] * len(tasks)
    kinds = zip(tasks, labels, about["accuracy"], about["chance"], strict=True)
    rows = [f"| {t} | {listed(c)} | {100 * a:.1f} % | {100 * p:.0f} % |" for t, c, a, p in kinds]
    each = f"one of {len(heads)} heads, a task each" if multi else "one head for all classes"
    early = "" if multi else "; the head answers among all classes"
    return CARD.format(
        title=f"{title}: {about['scenario']}",
        many=f"{len(tasks)} tasks" if len(tasks) > 1 else "one task",
        scenario=about["scenario"],
        seed=about["seed"],
        reads=reads(about),
        answers=each,
        sizes=", ".join(map(str, about["hidden"])) or "none",
        parameters=about["parameters"],
        stored=about["stored"],
        data=about["data_sha256"][:16] + "…",
        versions=", ".join(f"{name} {number}" for name, number in about["versions"].items()),
        early=early,
        rows="\n".join(rows),
        evaluation=FITTED if multi and about["config"].get("replay") else "",
        file=file,
    )


def reads(about: dict[str, Any]) -> str:
    """What the inputs are."""
    inputs = about["inputs"]
    size = " × ".join(map(str, inputs["shape"]))
    moved = inputs["center"] or inputs["scale"] != 1
    scaled = f", then (p − {inputs['center']:g}) / {inputs['scale']:g}" if moved else ""
    order = "; each task's pixels are shuffled in its own way" if inputs.get("shuffled") else ""
    return f"{size} numbers an image, bytes as 0 to 1{scaled}{order}"


def listed(labels: Sequence[Any]) -> str:
    """Labels in a row, the middle of many left out."""
    words = [str(label) for label in labels]
    return ", ".join(words if len(words) <= 10 else [*words[:8], "…", words[-1]])


def write_card(network: Path, title: str, about: dict[str, Any]) -> Path:
    """Write the card of the network in this file beside it."""
    return write_beside(network, model_card(network.name, title, about))


def write_beside(network: Path, text: str) -> Path:
    path = network.with_suffix(".md")
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
