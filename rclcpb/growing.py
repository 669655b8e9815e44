"""A scenario that grows: tasks come one at a time, and of a learned one only what is stored stays.

run = GrowingRun(GrowingLearner(Scenario("mine", (first,), "single"), config, 0, "cpu", 500))
run.learn(first)
run.learn(second)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import checks
from rclcpb.coreset import by_class
from rclcpb.files import RclCpbError
from rclcpb.images import ARRAYS
from rclcpb.method import Samples, below, seeded
from rclcpb.records import Stage
from rclcpb.runner import Run
from rclcpb.scenarios import Scenario, Task
from rclcpb.tables import format_table
from rclcpb.undo import a_whole_task, alone


@dataclass(frozen=True, eq=False)
class Piece(Task):
    """Samples of a task: perhaps not of all its classes, perhaps none to test on."""

    def __post_init__(self) -> None:  # a whole task wants samples of every class
        object.__setattr__(self, "inputs", self.inputs or math.prod(self.x_train.shape[1:]))


def only(task: Task, places: Tensor) -> Task:
    """What stays of a task: some of its training data, and what it is tested on."""
    keep = places.cpu().numpy()
    return replace(task, x_train=task.x_train[keep], y_train=task.y_train[keep])


class GrowingLearner(core.Learner):
    """Algorithm 1 for tasks that come one at a time, with a bound on all that is stored.

    `head_of` has the head of each piece: with a head a task, more of a task that is known goes
    to the head it has. Where every piece is a task and nothing is bounded, this is the core's
    learner bit for bit.
    """

    def __init__(
        self, scenario: Scenario, config: Any, seed: int, device: Any, memory: int | None
    ) -> None:
        self.memory = memory if memory is None else checks.whole("memory", memory, 1)
        self.head_of = [0]
        super().__init__(scenario, config, seed, device)

    def check(self) -> None:
        """A task that is smaller than the coreset stores half of its samples."""

    def head(self, t: int) -> int:
        return self.head_of[t]

    def store(self, t: int, data: Samples) -> Samples:
        data = data._replace(head=self.head(t))
        if t == len(self.chosen):
            size, choice = self.room(t, data.y), self.config.coreset_choice
            with seeded(self.seed, t, "coreset"):
                self.chosen.append(core.choose_coreset(data.x, data.y, size, choice))
        return super().store(t, data)

    def room(self, t: int, y: Tensor) -> int:
        """How many of a new piece's samples are stored; older ones make room for it."""
        wanted, samples = self.config.coreset, len(y)
        size = min(wanted if wanted < samples else samples // 2, samples - len(y.unique()))
        if wanted and not size:
            raise RclCpbError(
                "a task of one sample a class cannot both store and learn it: give more, or set"
                " coreset=0 and replay_mix=0."
            )
        if self.memory is None or not wanted:
            return size
        if not (quota := self.memory // (t + 1)):
            raise RclCpbError(
                f"memory={self.memory} has no room for a sample of each of {t + 1} tasks:"
                " choose a larger one."
            )
        for j in range(t):
            self.thin(j, quota)
        return min(size, quota)

    def thin(self, j: int, size: int) -> None:
        """Store fewer of piece j, equally many of each of its classes."""
        stored = self.coreset[j]
        if size < len(stored.y):
            order = torch.arange(len(stored.y), device=self.device)
            keep = by_class(stored.x, stored.y, size, order, medoids=False, left=0)
            self.coreset[j], self.chosen[j] = stored.rows(keep), self.chosen[j][keep]

    def open_head(self, t: int) -> Any:
        if self.scenario.heads == "single":
            return super().open_head(t)
        if self.head(t) == len(self.net.heads):
            self.net.add_head(len(self.scenario.columns(t)))
        return None

    def replay(self, net: core.ProgressiveBNN, t: int, name: str, data: Samples) -> None:
        """With a head a task: all that is stored for the head, in however many pieces."""
        pieces = [stored for stored in self.coreset if stored.head == data.head]
        if self.scenario.heads == "multi" and len(pieces) > 1:
            x, y = torch.cat([one.x for one in pieces]), torch.cat([one.y for one in pieces])
            data = data._replace(x=x, y=y)
        super().replay(net, t, name, data)

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.coreset = [s._replace(head=self.head(j)) for j, s in enumerate(self.coreset)]


class GrowingRun(Run):
    """A run whose scenario grows; a piece without test data is not evaluated."""

    method: GrowingLearner

    def evaluate(self, j: int) -> tuple[float, float, float]:
        if len(self.scenario.tasks[j].y_test):
            return super().evaluate(j)
        return math.nan, math.nan, math.nan

    def learn(self, task: Task, head: int = 0) -> None:
        """Learn one more task, or nothing of it; all that stays of it is what is stored."""
        method, learned = self.method, len(self.stages)
        with alone(method):
            self.let_go()
            tasks, head_of = self.scenario.tasks[:learned], method.head_of[:learned]
            try:
                self.have((*tasks, task), [*head_of, head])
                for hook in self.hooks:
                    hook.on_start(self)
                with a_whole_task(self):
                    self._learn_task(learned)
            finally:
                if len(self.stages) == learned:
                    self.have(tasks, head_of)
            self.let_go()

    def let_go(self) -> None:
        """Of what is not stored; who was interrupted in it does it before anything else."""
        chosen = self.method.chosen
        pairs = [*zip(self.scenario.tasks, chosen, strict=False)]
        if any(len(task.y_train) > len(places) for task, places in pairs):
            left = [torch.arange(len(places), device=places.device) for places in chosen]
            self.have(tuple(only(*pair) for pair in pairs), self.method.head_of, chosen=left)

    def have(self, tasks: tuple[Task, ...], head_of: list[int], **more: Any) -> None:
        """All of it at once: no interruption comes in between."""
        scenario = replace(self.scenario, tasks=tasks) if tasks else self.scenario
        self.method.__dict__.update(scenario=scenario, head_of=head_of, **more)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to go on: tensors, and JSON values."""
        self.let_go()
        state = self.method.state()
        tensors = {f"method.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        for j, task in enumerate(self.scenario.tasks):
            tensors |= {f"{j}.{name}": torch.tensor(getattr(task, name)) for name in ARRAYS}
        about = [{"name": task.name, "classes": task.classes} for task in self.scenario.tasks]
        facts = {
            "method": {k: v for k, v in state.items() if not isinstance(v, Tensor)},
            "stages": [asdict(stage) for stage in self.stages],
            "pieces": about,
            "head_of": self.method.head_of,
        }
        return tensors, facts

    def restore(self, tasks: Sequence[Task], tensors: dict[str, Tensor], facts: Any) -> None:
        """Go on from a `state`, whose tasks these are."""
        self.have(tuple(tasks), facts["head_of"])
        self.method.load(below("method.", tensors) | facts["method"])
        self.stages = [Stage(**stage) for stage in facts["stages"]]


def pieces(tensors: dict[str, Tensor], facts: dict[str, Any]) -> list[Piece]:
    """The tasks of a `GrowingRun.state`."""
    made = []
    for j, about in enumerate(facts["pieces"]):
        arrays = {name: tensors[f"{j}.{name}"].numpy() for name in ARRAYS}
        made.append(Piece(name=about["name"], classes=tuple(about["classes"]), **arrays))
    return made


def summary(run: GrowingRun, labels: Sequence[Any]) -> str:
    """A line a piece, and what the network and its memory hold."""
    learner, accuracy = run.method, run.stages[-1].accuracy or []
    rows = []
    for j, stage in enumerate(run.stages):
        cells = [stage.pruned, stage.shared, stage.added, stage.hidden]
        stored = str(len(learner.chosen[j]))
        now = "" if math.isnan(accuracy[j]) else f"{100 * accuracy[j]:.1f}"
        classes = [str(labels[code]) for code in run.scenario.tasks[j].classes]
        shown = ["" if not cell else " ".join(map(str, cell)) for cell in cells]
        rows.append((stage.task, ", ".join(classes), *shown, stored, now))
    header = ("task", "classes", "pruned", "borrowed", "added", "sizes", "stored", "accuracy %")
    kept, bound = learner.stored(), "" if learner.memory is None else f" of {learner.memory}"
    end = f"{learner.parameters():,} parameters; {kept}{bound} samples stored"
    return f"{format_table(rows, header)}\n{end}"


def check_whole(run: GrowingRun, labels: Sequence[Any], names: Sequence[Any]) -> None:
    """Does what was restored from a file fit together? Else this fails."""
    method, tasks = run.method, run.scenario.tasks
    parts: list[Sequence[Any]] = [run.stages, method.head_of, names, method.chosen]
    if method.learned != len(tasks) or {len(tasks)} != {*map(len, parts)}:
        raise ValueError("it has not one of each a task")
    if not all(isinstance(one, int | str) for one in (*labels, *names)):
        raise ValueError("it has names that are none")
    for task in tasks:
        for x, y in ((task.x_train, task.y_train), (task.x_test, task.y_test)):
            if y.dtype != np.int64 or y.shape != x.shape[:1] or not {*y} <= {*task.classes}:
                raise ValueError("its labels are none")
            checks.like(x, tasks[0].x_train)
        if not {*task.classes} <= {*range(len(labels))}:
            raise ValueError("its classes have no names")
    for j, stored in enumerate(method.coreset):
        columns = len(run.scenario.columns(j))
        outputs = method.net.heads[method.head(j)].shape[0]
        single = run.scenario.heads == "single"
        if columns > outputs or (columns < outputs and (j == len(tasks) - 1 or not single)):
            raise ValueError("its heads are of other classes")
        if stored.answers is not None and stored.answers.shape[1] != columns:
            raise ValueError("its stored answers are of other classes")
    summary(run, labels)
