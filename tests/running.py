"""What tests of runs share: the kinds of run, what comes out of one, and files."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tiny
import torch

from rclcpb.method import Round
from rclcpb.records import Record
from rclcpb.runner import Hook, Run, make

TIMES = ("seconds", "structure_seconds", "peak_mib", "started")
FIXED = {"prune": False, "grow": False}
PLUS = {"sampling": "local", "new_into_old": "zero", "coreset_choice": "medoids", "decay": True}
NATURAL = {"optimiser": "natural", "sampling": "local", "lr_rho": 0.02}


class Kind(NamedTuple):
    """A kind of run; each keeps state of another kind while it goes on."""

    method: str
    scenario: dict[str, Any]
    config: dict[str, Any]

    def run(self, hooks: Iterable[Hook] = (), progress: bool = False, **changes: Any) -> Run:
        """A new run, as if in a new process."""
        config = tiny.config(**({"epochs": 2} | self.config | changes))
        method = make(self.method, tiny.scenario(**self.scenario), config, 5)
        return Run(method, [*hooks], progress)


KINDS = {
    "one head": Kind("rcl-cpb", {"heads": "single"}, {"gamma": 0.9}),
    "heads": Kind("rcl-cpb", {"heads": "multi"}, {"gamma": 0.9}),
    "plus, one head": Kind("rcl-cpb-plus", {"heads": "single"}, PLUS | {"replay_mix": 4}),
    "plus, heads": Kind("rcl-cpb-plus", {"heads": "multi"}, PLUS | {"replay_mix": 4, "gamma": 0.9}),
    "natural, one head": Kind(
        "rcl-cpb-plus",
        {"heads": "single"},
        NATURAL | PLUS | {"replay_mix": 4, "stored_targets": "answers", "gamma": 0.9},
    ),
    "memoryless, heads": Kind(
        "rcl-cpb",
        {"heads": "multi"},
        NATURAL | {"new_into_old": "none", "coreset": 0, "replay": False, "gamma": 0.9},
    ),
    "convolutions": Kind("rcl-cpb", {"trunk": True, "tasks": tiny.PAIRS[:2]}, {"gamma": 0.9}),
    "control, one head": Kind("coreset-only", {"heads": "single"}, FIXED),
    "control, heads": Kind("coreset-only", {"heads": "multi"}, FIXED),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def content(record: Record) -> dict[str, Any]:
    """A record as JSON holds it, without what differs from run to run."""
    values = json.loads(json.dumps(asdict(record), allow_nan=False))
    return {k: v for k, v in values.items() if k not in TIMES}


class Outcome(NamedTuple):
    """What a run ends in, to be compared bit for bit."""

    record: dict[str, Any]
    network: dict[str, torch.Tensor]
    stored: list[torch.Tensor]

    @staticmethod
    def of(run: Run, name: str = "rcl-cpb") -> Outcome:
        record, method = content(run.finish(name)), run.method
        stored = [tensor for one in method.coreset for tensor in (one.x, one.y)]
        return Outcome(record, tiny.snapshot(method.net), stored)

    def equals(self, other: Outcome) -> bool:
        pairs = zip(self.stored, other.stored, strict=True)
        return (
            self.record == other.record
            and tiny.same(self.network, other.network)
            and all(torch.equal(mine, theirs) for mine, theirs in pairs)
        )


def same_state(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Tensors bit for bit, all else equal."""
    tensors, facts = (
        [{k: v for k, v in one.items() if isinstance(v, torch.Tensor) is kind} for one in (a, b)]
        for kind in (True, False)
    )
    return tiny.same(*tensors) and facts[0] == facts[1]


class AtEveryRound(Hook):
    """Does something after each round, with the run and the round's number."""

    def __init__(self, action: Callable[[Run, int], Any]) -> None:
        self.action = action

    def on_round(self, run: Run, done: Round) -> None:
        self.action(run, done.done)


class Interrupting(Hook):
    """Raises at every call of a hook, the first time that this call comes."""

    def __init__(self, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.error, self.met = error, list[tuple]()

    def interrupt(self, *place: Any) -> None:
        if place not in self.met:
            self.met.append(place)
            raise self.error

    def on_start(self, run: Run) -> None:
        self.interrupt("start", len(run.stages))

    def on_round(self, run: Run, done: Round) -> None:
        self.interrupt(len(run.stages), done.done)

    def on_task(self, run: Run, stage: Any) -> None:
        self.interrupt(len(run.stages), "learned")


# -------------------------------------------------------------------------------- files


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder but lock files."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".lock"
    }


def one_line(err: str) -> bool:
    """One sentence after 'error:'; what tqdm draws does not count."""
    text = err[err.index("error:") :]
    before = err[: -len(text)]
    own_line = not before or before.endswith("\n")
    return own_line and text.count("\n") == 1 and "Traceback" not in err


class Harm:
    """Unpickling this leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.trace,)


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """The system refuses to make a file longer than this: the real thing."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def killed_after(seconds: float, action: Callable[[], Any]) -> bool:
    """Do it in a process of its own and kill that; False if it was done before."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
