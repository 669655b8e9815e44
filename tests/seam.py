"""The seam between a method and the loop over tasks, until the core has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import rclcpb_core as core


class Round(NamedTuple):
    """One epoch of a fit: how many are done, of how many, and the losses in it."""

    done: int
    of: int
    nll: float
    kl: float


class Method:
    """Learns one task after another; the runner asks it, times it and records it."""

    def __init__(
        self, scenario: core.Scenario, config: Any, seed: int = 0, device: Any = "cpu"
    ) -> None:
        self.scenario, self.config, self.seed = scenario, config, seed
        self.device = torch.device(device)

    def store(self, t: int, data: core.Samples) -> core.Samples:
        return data

    def begin(self, t: int, data: core.Samples) -> None:
        raise NotImplementedError

    def fit(self, t: int, data: core.Samples) -> Iterator[Round]:
        raise NotImplementedError

    def end(self, t: int) -> None:
        raise NotImplementedError

    def answer(self, j: int, x: Tensor) -> Tensor:
        raise NotImplementedError

    def unchanged(self, j: int) -> bool:
        return False

    def notes(self) -> dict[str, Any]:
        return {}

    def parameters(self) -> int:
        raise NotImplementedError

    def stored(self) -> int:
        return 0

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def load(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


def samples(scenario: core.Scenario, t: int, split: str, device: Any = "cpu") -> core.Samples:
    """A task's data as tensors on the device."""
    task, device = scenario.tasks[t], torch.device(device)
    x = scenario.inputs(getattr(task, f"x_{split}"), task, device)
    y = scenario.targets(getattr(task, f"y_{split}"), t, device)
    pixels = None if task.permutation is None else torch.from_numpy(task.permutation).to(device)
    return core.Samples(x, y, t if scenario.heads == "multi" else 0, pixels, task.mirror)


def run(
    method: Method,
    first: int = 0,
    resumed: bool = False,
    watch: Callable[[int, Round], None] = lambda t, round: None,
) -> list[list[float]]:
    """Learn every task from `first` on; each task's accuracies on the tasks so far."""
    accuracy = []
    for t in range(first, len(method.scenario.tasks)):
        data = method.store(t, samples(method.scenario, t, "train"))
        if not (resumed and t == first):
            method.begin(t, data)
            method.answer(t, samples(method.scenario, t, "test").x)
        for done in method.fit(t, data):
            watch(t, done)
        method.end(t)
        tests = [samples(method.scenario, j, "test") for j in range(t + 1)]
        answers = [method.answer(j, test.x) for j, test in enumerate(tests)]
        accuracy.append([core.score(p, s.y)[0] for p, s in zip(answers, tests, strict=True)])
    return accuracy
