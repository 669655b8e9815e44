"""The other methods by their names, and settings with which tiny scenarios are learned."""

from __future__ import annotations

from typing import Any

import seam
import tiny
import torch

import rclcpb_core as core
from rclcpb.methods import gem, icarl, penalties, plain, pnn, replay
from rclcpb.methods.network import Batch, PlainConfig

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


def learn(name: str, heads: str = "multi", tasks: int = 3, **changes: Any) -> Any:
    """A method that has learned so many of a tiny scenario's tasks."""
    scenario = tiny.scenario(tiny.PAIRS[:tasks], heads)
    method = METHODS[name](scenario, settings(**changes), 3)
    seam.run(method)
    method.scenario = tiny.scenario(heads=heads)  # and may go on
    return method


def begin(method: Any, t: int) -> core.Samples:
    """The data of a task that the method has begun."""
    data = seam.samples(method.scenario, t, "train")
    method.begin(t, data)
    return data


def first_batch(method: Any, t: int, count: int = 16) -> Batch:
    data = seam.samples(method.scenario, t, "train")
    return method.take(t, data, torch.arange(count))
