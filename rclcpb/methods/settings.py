"""The other methods' settings on each scenario: first ones, from a few runs on validation data.

Networks have the sizes at which RCL-CPB ended, and images stored are as many as RCL-CPB's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rclcpb.files import RclCpbError
from rclcpb.methods.network import PlainConfig

_PMNIST = PlainConfig(hidden=(165, 185), memory=200, epochs=1, lr=2e-3)
_PMNIST_CHANGES: dict[str, dict[str, Any]] = {
    "ewc": {"strength": 1e3},
    "ewc-online": {"strength": 1e3},
    "lp": {"strength": 1e3},
    "rwalk": {"strength": 10.0},
    "gem": {"lr": 1e-3},
}
BASES: dict[str, PlainConfig] = {
    "pmnist": _PMNIST,
    "pmnist-shared": replace(_PMNIST, hidden=(249, 267)),
    "mh-smnist": PlainConfig(hidden=(103, 114), memory=40, epochs=10),
    "ta-smnist": PlainConfig(hidden=(212, 235), memory=20, epochs=4),
}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "pmnist": _PMNIST_CHANGES,
    "pmnist-shared": _PMNIST_CHANGES,
    "mh-smnist": {
        "ewc": {"strength": 3e3},
        "ewc-online": {"strength": 1e4},
        "lp": {"strength": 1e4},
        "rwalk": {"memory": 0},
    },
    "ta-smnist": {
        "ewc": {"mask": "own", "strength": 1e5},
        "ewc-online": {"mask": "own", "strength": 1e3},
        "lp": {"mask": "own", "strength": 10.0},
        "si": {"mask": "own", "strength": 10.0},
        "rwalk": {"final_steps": 200},
        "gem": {"margin": 1.0},
        "er": {"mask": "own", "final_steps": 200},
        "der++": {"final_steps": 200},
        "icarl": {"epochs": 5, "final_steps": 200},
    },
}


def plain_settings(scenario: str, method: str) -> PlainConfig:
    """The settings of a method of plain networks; the -5k scenarios train longer on less."""
    name = scenario.removesuffix("-5k")
    if name not in BASES:
        raise RclCpbError(f"{method} has no settings on {scenario} yet: {', '.join(BASES)} have.")
    config = replace(BASES[name], **CHANGES[name].get(method, {}))
    if name == scenario:
        return config
    return replace(config, epochs=3 * config.epochs, batch_size=min(64, config.batch_size))
