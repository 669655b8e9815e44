"""The other methods by their names, and settings with which tiny scenarios are learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tiny
import torch

from rclcpb.method import Round, Samples, samples
from rclcpb.methods import gem, icarl, penalties, plain, pnn, replay
from rclcpb.methods.network import Batch, PlainConfig
from rclcpb.records import Stage
from rclcpb.runner import Hook, Run

METHODS: dict[str, type[plain.PlainMethod]] = {
    "finetune": plain.Finetune,
    "joint": plain.Joint,
    "er": replay.ER,
    "der++": replay.DERpp,
    "ewc": penalties.EWC,
    "ewc-online": penalties.OnlineEWC,
    "lp": penalties.LP,
    "si": penalties.SI,
    "rwalk": penalties.RWalk,
    "gem": gem.GEM,
    "icarl": icarl.ICaRL,
    "pnn": pnn.PNN,
}
PAIRED = [(name, "multi") for name in METHODS] + [(n, "single") for n in METHODS if n != "pnn"]


def settings(**changes: Any) -> PlainConfig:
    small: dict[str, Any] = {
        "hidden": (10, 8),
        "epochs": 2,
        "batch_size": 16,
        "lr": 0.02,
        "memory": 6,
        "final_steps": 2,
    }
    return PlainConfig(**(small | changes))


def make(name: str, heads: str = "multi", trunk: bool = False, **changes: Any) -> Any:
    return METHODS[name](tiny.scenario(heads=heads, trunk=trunk), settings(**changes), 3)


class Watch(Hook):
    """Calls a function after every round, and after every task."""

    def __init__(self, look: Callable[[Run], None], tasks: bool = False) -> None:
        self.look, self.tasks = look, tasks

    def on_round(self, run: Run, done: Round) -> None:
        self.look(run)

    def on_task(self, run: Run, stage: Stage) -> None:
        if self.tasks:
            self.look(run)


def accuracies(method: Any, *hooks: Hook) -> list[list[float]]:
    """Those after each task of a whole run."""
    return [stage.accuracy for stage in Run(method, hooks)]


def learn(name: str, heads: str = "multi", tasks: int = 3, **changes: Any) -> Any:
    """A method that has learned so many of a tiny scenario's tasks."""
    scenario = tiny.scenario(tiny.PAIRS[:tasks], heads)
    method = METHODS[name](scenario, settings(**changes), 3)
    accuracies(method)
    method.scenario = tiny.scenario(heads=heads)  # and may go on
    return method


def begin(method: Any, t: int) -> Samples:
    """The data of a task that the method has begun."""
    data = samples(method.scenario, t, "train")
    method.begin(t, data)
    return data


def first_batch(method: Any, t: int, count: int = 16) -> Batch:
    data = samples(method.scenario, t, "train")
    return method.take(t, data, torch.arange(count))
