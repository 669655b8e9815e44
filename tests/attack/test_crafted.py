"""Three hundred crafted files: each is refused in one sentence, or is what it was."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from outcomes import REFUSED, RIGHT, TRACEBACK, WRONG, Tally
from running import KINDS, AtEveryRound, Harm, Interrupting, Outcome, content

import rclcpb_core as core
from rclcpb import ContinualClassifier, images
from rclcpb.checkpoint import Checkpoint
from rclcpb.files import RclCpbError, load_tensors, save_tensors
from rclcpb.methods.network import PlainConfig
from rclcpb.presets import METHODS
from rclcpb.records import load_record, save_record
from rclcpb.runner import Run
from rclcpb.runner import make as make_method

pytestmark = pytest.mark.long
EACH = 75  # of four kinds of files
Crafted = Iterator[tuple[str, bytes]]


def damaged(good: bytes, trace: Path, rng: random.Random) -> Crafted:
    """What any file may come to, without end."""
    yield from (("empty", b""), ("zeros", bytes(len(good))), ("twice", good + good))
    yield from (("pickle", pickle.dumps(Harm(trace))), ("text", b"not this\n" * 99))
    yield from (
        ("huge header", struct.pack("<Q", 2**62) + good[8:]),
        ("utf-16", b"\xff\xfe" + good),
    )
    yield "nested", b"[" * 10**5
    while True:
        place = rng.randrange(len(good))
        flipped = bytearray(good)
        flipped[place] ^= 1 << rng.randrange(8)
        yield f"bit flipped at {place}", bytes(flipped)
        yield f"cut at {place}", good[:place]
        other = rng.randrange(len(good))
        yield (
            f"a block from {other} at {place}",
            good[:place] + good[other : other + 64] + good[place:],
        )


def attacked(tally: Tally, path: Path, crafted: Crafted, same: Callable[[], bool]) -> None:
    """Each file is read as a user's would be: what comes of it?"""
    for _, (name, data) in zip(range(EACH), crafted, strict=False):
        path.write_bytes(data)
        try:
            tally.add(RIGHT if same() else WRONG, f"{path.name}: {name}")
        except RclCpbError as error:
            said = str(error)
            named = str(path) in said or "checkpoint" in said  # a fit, which has read it
            clear = "\n" not in said and named and len(said) < 600
            tally.add(REFUSED if clear else TRACEBACK, f"{path.name}: {name}: {said}")
        except Exception as error:
            tally.add(TRACEBACK, f"{path.name}: {name}: {error!r}")


def test_crafted_records(tally: Tally, tmp_path: Path) -> None:
    record = KINDS["one head"].run(epochs=1).finish("rcl-cpb")
    path, trace, rng = tmp_path / "record.json", tmp_path / "trace", random.Random(1)
    save_record(record, path)
    good, before = path.read_bytes(), load_record(path)

    def crafted() -> Crafted:
        values = json.loads(good)
        for name in values:  # each of another kind
            yield f"{name} is a word", json.dumps(values | {name: "NaN"}).encode()
        yield from damaged(good, trace, rng)

    attacked(tally, path, crafted(), lambda: load_record(path) == before)
    assert not trace.exists()


def test_crafted_checkpoints(tally: Tally, tmp_path: Path) -> None:
    """One that is let in must lead to the same end."""
    path, trace, rng = tmp_path / "run.checkpoint", tmp_path / "trace", random.Random(2)
    kind, about = KINDS["heads"], {"scenario": "tiny", "seed": 5}
    whole = Outcome.of(kind.run(epochs=2))
    keeper = Checkpoint(path, about)
    hooks = [Interrupting(), AtEveryRound(lambda run, _: keeper.save(run) if run.stages else None)]
    run = kind.run(hooks[1:], epochs=2)
    run.learn_task()
    run.hooks.append(hooks[0])
    with pytest.raises(KeyboardInterrupt):  # in the second task's first round, which is saved
        run.learn_task()
    good = path.read_bytes()
    tensors, facts = load_tensors(path, "")

    def crafted() -> Crafted:
        """Some of them whole, and with a checksum that fits."""
        for name in tensors:
            fewer = tensors[name].flatten()[:1] if "chosen" not in name else torch.zeros(2, 2)
            for other in (fewer, tensors[name].double()[..., None], torch.zeros(0)):
                save_tensors(path, tensors | {name: other}, facts)
                yield f"another {name}", path.read_bytes()
        for name in facts:
            save_tensors(path, tensors, {k: v for k, v in facts.items() if k != name})
            yield f"no {name}", path.read_bytes()
        yield from damaged(good, trace, rng)

    def same() -> bool:
        again = kind.run(epochs=2)
        assert Checkpoint(path, about).restore(again)
        return Outcome.of(again).equals(whole)

    attacked(tally, path, crafted(), same)
    assert not trace.exists()


def forged(
    tensors: dict[str, Any], facts: dict[str, Any], path: Path, rng: random.Random
) -> Crafted:
    """Files with a checksum that fits, in each of which one thing is of another form."""
    while True:
        if rng.random() < 0.6:
            name = rng.choice(sorted(tensors))
            value = tensors[name]
            odd = [value[None], value.flatten()[:0], value.to(torch.complex64)]
            odd += [value.flatten()[0]] if value.dim() and value.numel() else []
            save_tensors(path, tensors | {name: rng.choice(odd)}, facts)
        else:
            name = rng.choice(sorted(facts))
            odd = [{}, -1, "x", 1.5, [[]], [None], 10**12]
            save_tensors(path, tensors, facts | {name: rng.choice(odd)})
        yield f"another {name}", path.read_bytes()


def test_crafted_checkpoints_of_other_kinds(tally: Tally, tmp_path: Path) -> None:
    """Of other methods, of natural steps and of stored answers: a forged one harms nobody.

    A fused step of an optimiser would write where a forged shape says.
    """
    path, rng, about = tmp_path / "run.checkpoint", random.Random(5), {"scenario": "tiny"}
    scenario, config = (
        tiny.scenario(heads="multi", n=10),
        PlainConfig(hidden=(6,), epochs=2, memory=6),
    )
    plain = [name for name, entry in METHODS.items() if entry.learner.takes is PlainConfig]
    makers: dict[str, Callable[[], Run]] = {
        name: lambda name=name: Run(make_method(name, scenario, config, 5)) for name in plain
    }
    makers["natural"] = lambda: KINDS["natural, one head"].run(epochs=2)
    assert len(makers) > 11
    for make in makers.values():
        whole, keeper = content(make().finish("rcl-cpb")), Checkpoint(path, about, every=0)
        run = make()
        run.hooks = [keeper, AtEveryRound(lambda run, done: 1 / (done != 1 or not run.stages))]
        run.learn_task()
        with pytest.raises(ZeroDivisionError):  # in the second task's first round, which is saved
            run.learn_task()
        tensors, facts = load_tensors(path, "")

        def same(make: Any = make, whole: Any = whole) -> bool:
            again = make()
            Checkpoint(path, about).restore(again)
            return content(again.finish("rcl-cpb")) == whole

        assert same()
        attacked(tally, path, islice(forged(tensors, facts, path, rng), 8), same)


def test_crafted_classifiers(tally: Tally, tmp_path: Path) -> None:
    path, trace, rng = tmp_path / "mine.safetensors", tmp_path / "trace", random.Random(6)
    tasks = tiny.scenario(n=8).tasks
    made = ContinualClassifier(tiny.config(epochs=1, replay_steps=2, coreset=4))
    for task in tasks[:2]:
        made.learn(task.x_train, task.y_train, test=(task.x_test, task.y_test))
    made.save(path)
    good, (tensors, facts) = path.read_bytes(), load_tensors(path, "")
    facts["given"]["device"] = "cpu"

    def learned(one: ContinualClassifier) -> Any:
        answers = one.predict_proba(tasks[0].x_test)
        return answers, one.learn(tasks[2].x_train, tasks[2].y_train).predict_proba(tasks[0].x_test)

    whole = learned(made)

    def same() -> bool:
        found = learned(ContinualClassifier.load(path))
        return all(np.array_equal(a, b) for a, b in zip(found, whole, strict=True))

    crafted = chain(islice(forged(tensors, facts, path, rng), 50), damaged(good, trace, rng))
    attacked(tally, path, crafted, same)
    assert not trace.exists()


def test_crafted_networks(tally: Tally, tmp_path: Path) -> None:
    path, trace, rng = tmp_path / "net.safetensors", tmp_path / "trace", random.Random(3)
    net = tiny.network()
    net.save(path)
    good, before = path.read_bytes(), tiny.snapshot(net)
    tensors, facts = load_tensors(path, "")

    def crafted() -> Crafted:
        for name, value in tensors.items():
            save_tensors(path, tensors | {name: value[:-1]}, facts)
            yield f"a shorter {name}", path.read_bytes()
        for name in facts:
            for other in (None, [], {}, -1, "x"):
                if name not in ("about", "version"):  # a reader's, which may be anything
                    save_tensors(path, tensors, facts | {name: other})
                    yield f"{name}={other}", path.read_bytes()
        yield from damaged(good, trace, rng)

    attacked(tally, path, crafted(), lambda: tiny.same(tiny.snapshot(core.load(path)), before))
    assert not trace.exists()


def test_crafted_image_sets(tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bombs, pickles and noise; a set that is let in is the published one."""
    path, trace, rng = tmp_path / "mnist.npz", tmp_path / "trace", np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    y = (np.arange(40) % 10).astype(np.uint8)
    sound = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    np.savez(path, **sound)
    monkeypatch.setitem(images.SHA256, "mnist", images.Images(**sound).sha256())
    good = path.read_bytes()

    def crafted() -> Crafted:
        kinds: list[Any] = [
            x / 255,
            x[:, :14],
            x[..., None],
            -x.astype(int),
            x[:0],
            x[:39],
            255 - x,
        ]
        kinds += [np.array([Harm(trace)] * 40, dtype=object), x.astype("datetime64[s]"), x[0, 0, 0]]
        for name in sound:
            for k, value in enumerate(kinds):
                file = BytesIO()
                np.savez(file, **(sound | {name: value}))
                yield f"{name} of kind {k}", file.getvalue()
        for shape in ((10**12, 28, 28), (2**62, 2, 2), (0, 28, 28), (-1, 28, 28)):
            yield f"says {shape}", bomb(good, shape)
        yield from damaged(good, trace, random.Random(4))

    def same() -> bool:
        os.utime(path, ns=(1, rng.integers(1, 2**60)))  # another file
        found = images.load_images("mnist", tmp_path)
        return all(np.array_equal(a, b) for a, b in zip(found, sound.values(), strict=True))

    attacked(tally, path, crafted(), same)
    assert not trace.exists()


def bomb(good: bytes, shape: tuple[int, ...]) -> bytes:
    """The same archive, where x_train says that it has this shape."""
    header, file = BytesIO(), BytesIO()
    np.lib.format.write_array_header_2_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(BytesIO(good)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            data = header.getvalue() if name == "x_train.npy" else old.read(name)
            new.writestr(name, data)
    return file.getvalue()
