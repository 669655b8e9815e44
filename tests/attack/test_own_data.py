"""A hundred kinds of own data: one sentence, or just what the same data in plain arrays give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from outcomes import REFUSED, RIGHT, TRACEBACK, WRONG, Tally
from running import content

from rclcpb import ContinualClassifier, runner, scenarios
from rclcpb.files import RclCpbError

pytestmark = pytest.mark.long
CASES = 100
Tasks = list[list[Any]]
Change = Callable[[Any], Any]

# what holds the same numbers
SAME: dict[str, Change] = {
    "Fortran's order": np.asfortranarray,
    "another byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "every second of twice": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards twice": lambda a: a[::-1].copy()[::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "a tensor": torch.from_numpy,
    "lists": lambda a: a if a.dtype == np.uint8 and a.ndim > 1 else a.tolist(),
    "a subclass": lambda a: a.view(type("Mine", (np.ndarray,), {})),
}
LABELS: dict[str, Change] = {
    kind: (lambda y, kind=kind: y.astype(kind))  # type: ignore[misc]
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}
# what no scenario can be made of
IMAGES_NOT: dict[str, Change] = {
    "NaN": lambda x: np.where(x > 200, np.nan, x / 255),
    "infinite": lambda x: np.where(x > 200, np.inf, x / 255),
    "too large for float32": lambda x: x * 1e300,
    "int64": lambda x: x.astype(np.int64),
    "uint16": lambda x: x.astype(np.uint16),
    "bool": lambda x: x > 100,
    "complex": lambda x: x + 0j,
    "objects": lambda x: x.astype(object),
    "words": lambda x: x.astype(str),
    "times": lambda x: x.astype("timedelta64[s]"),
    "masked": lambda x: np.ma.masked_greater(x, 200),
    "none": lambda x: x[:0],
    "one image less": lambda x: x[:-1],
    "one number each": lambda x: x[:, 0, 0],
    "five dimensions": lambda x: x[:, None, None],
    "ragged": lambda x: [*x[:-1], x[0, :3]],
    "0-255 as floats": lambda x: x.astype(np.float32),
    "nothing": lambda x: None,
    "a name": lambda x: "images.npy",
    "float16 without room": lambda x: np.full(x.shape, np.inf, np.float16),
    "longdouble": lambda x: (x / 255).astype(np.longdouble),
}
LABELS_NOT: dict[str, Change] = {
    "floats": lambda y: y.astype(float),
    "bool": lambda y: y > y.min(),
    "words": lambda y: y.astype(str),
    "objects": lambda y: y.astype(object),
    "2**63 and more": lambda y: y.astype(np.uint64) + np.uint64(2**63),
    "a matrix": lambda y: y[:, None],
    "one-hot": lambda y: np.eye(10, dtype=int)[y],
    "one less": lambda y: y[:-1],
    "masked": lambda y: np.ma.masked_equal(y, y[0]),
    "complex": lambda y: y + 0j,
    "times": lambda y: y.astype("datetime64[s]"),
    "nothing": lambda y: None,
    "a number": lambda y: 3,
}


def tasks() -> Tasks:
    return [list(tiny.arrays(classes)) for classes in tiny.PAIRS[:2]]


def result(made: Tasks, heads: Any) -> dict[str, Any]:
    config = tiny.config(epochs=1, replay_steps=5)
    return learned(runner.learn(scenarios.from_arrays(made, heads), config))


def learned(record: Any) -> dict[str, Any]:
    """What came out, whatever kind of number the labels were."""
    return {k: v for k, v in content(record).items() if k not in ("data_sha256", "identity")}


def changed(which: slice, change: Change, of: slice = slice(1, 2)) -> Tasks:
    """Two tasks' arrays, some of them changed: of the second task, unless it says otherwise."""
    made = tasks()
    for task in made[of]:
        task[which] = [change(array) for array in task[which]]
    return made


IMAGES, TARGETS = slice(0, None, 2), slice(1, None, 2)
EVERY = slice(None)


def cases() -> Iterator[tuple[str, bool, Tasks, Any]]:
    """A name, must it be as plain arrays are, the data, the heads."""
    for heads, (name, change) in itertools.product(("single", "multi"), SAME.items()):
        yield f"images, {name}", True, changed(IMAGES, change, EVERY), heads
        yield f"labels, {name}", True, changed(TARGETS, change, EVERY), heads
    for heads, (name, change) in itertools.product(("single", "multi"), LABELS.items()):
        yield f"labels, {name}", True, changed(TARGETS, change), heads
    for name, change in IMAGES_NOT.items():
        yield f"images, {name}", False, changed(IMAGES, change), "single"
        yield f"test images, {name}", False, changed(slice(2, 3), change), "multi"
    for name, change in LABELS_NOT.items():
        yield f"labels, {name}", False, changed(TARGETS, change), "single"
        yield f"test labels, {name}", False, changed(slice(3, 4), change), "single"
    for name in ("Single", None, "", "both", 1, ["single"]):
        yield f"heads {name!r}", False, tasks(), name
    odd: list[Any] = [None, [], [[]], [tasks()[0][:3]], tasks()[0], "tasks", 3]
    for made in odd:
        yield f"tasks {str(made)[:20]}", False, made, "single"


def attacked(
    tally: Tally, learn: Callable[..., Any], plain: Any, case: tuple[str, bool, Tasks, Any]
) -> None:
    """One case is learned: refused in one sentence, or just as the plain arrays are."""
    name, is_same, made, heads = case
    try:
        found = learn(made, heads)
    except RclCpbError as error:
        fine = not is_same and "\n" not in str(error)
        tally.add(REFUSED if fine else WRONG, f"{name}: {error}")
    except Exception as error:
        tally.add(TRACEBACK, f"{name}: {error!r}")
    else:
        good = is_same and found == plain[heads]
        tally.add(RIGHT if good else WRONG, f"{name}, {heads}: let in")


def test_own_data(tally: Tally) -> None:
    plain = {heads: result(tasks(), heads) for heads in ("single", "multi")}
    for case in cases():
        attacked(tally, result, plain, case)
    assert tally.total() >= CASES


def test_arrays_that_change_later(tally: Tally) -> None:
    """The caller's arrays are his; the scenario's stay what they were when it was made."""
    plain = result(tasks(), "single")
    for t, place in itertools.product(range(2), range(4)):
        made = tasks()
        scenario = scenarios.from_arrays(made, "single")
        made[t][place][:] = made[t][place][::-1].copy()
        found = learned(runner.learn(scenario, tiny.config(epochs=1, replay_steps=5)))
        tally.add(RIGHT if found == plain else WRONG, f"task {t}, array {place}")


def classified(made: Tasks, heads: Any) -> Any:
    """What a classifier says that was given the same tasks one after another."""
    classifier = ContinualClassifier(tiny.config(epochs=1, replay_steps=5), heads)
    for x, y, *test in made:
        classifier.learn(x, y, test=tuple(test))
    return classifier.predict_proba(tasks()[0][2]).tolist()


# what a classifier may be given: numbers of more kinds, words and truth values for labels
WELCOME = {"bool", "objects", "longdouble", "float16 without room", "floats", "a matrix", "words"}


def test_own_data_of_a_classifier(tally: Tally) -> None:
    plain = {heads: classified(tasks(), heads) for heads in ("single", "multi")}
    for case in cases():
        name, _, _, heads = case
        asked = str(heads) in plain and not name.startswith("tasks ")
        if asked and name.partition(", ")[2] not in WELCOME:
            attacked(tally, classified, plain, case)
    assert tally.total() >= 60
