"""The other methods' settings on each scenario, as benchmarks/field.py found them.

Networks have the sizes at which RCL-CPB ended, and images stored are as many as RCL-CPB's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rclcpb.methods.network import PlainConfig
from rclcpb_core import Config

_PMNIST = PlainConfig(hidden=(165, 185), memory=200, epochs=1, lr=2e-3)
BASES: dict[str, PlainConfig] = {
    "pmnist": _PMNIST,
    "pmnist-shared": replace(_PMNIST, hidden=(249, 267)),
    "mh-smnist": PlainConfig(hidden=(103, 114), memory=40, epochs=3),
    "ta-smnist": PlainConfig(hidden=(212, 235), memory=20, epochs=2),
    # not searched yet: benchmarks/field.py does it
    "mh-cifar100": PlainConfig(hidden=(322, 245), memory=256, batch_size=32),
    "ta-cifar100": PlainConfig(hidden=(436, 315), memory=256, batch_size=32),
    "mnist-svhn-cifar10": PlainConfig(hidden=(612, 651), memory=512, epochs=4, batch_size=32),
}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "pmnist": {
        "er": {"lr": 6e-3},
        "der++": {"lr": 6e-3, "beta": 0.5, "alpha": 0.1},
        "ewc": {"lr": 6e-3, "batch_size": 64},
        "ewc-online": {"lr": 6e-3, "keep": 1.0},
        "si": {"lr": 6e-3, "strength": 0.1},
        "lp": {"lr": 6e-3, "batch_size": 64},
        "rwalk": {"lr": 6e-3, "strength": 0.1},
        "icarl": {"lr": 6e-3, "batch_size": 64},
        "pnn": {"lr": 6e-3, "batch_size": 64},
    },
    "pmnist-shared": {
        "finetune": {"lr": 6.67e-4},
        "er": {"beta": 3.0},
        "der++": {"lr": 6e-3},
        "si": {"strength": 0.1},
        "rwalk": {"strength": 1.0},
        "gem": {"margin": 1.0},
    },
    "mh-smnist": {
        "der++": {"lr": 3e-3, "beta": 0.5, "alpha": 0.1},
        "ewc": {"lr": 3e-3, "strength": 1e3},
        "ewc-online": {"strength": 1e3},
        "si": {"strength": 1.0},
        "lp": {"lr": 3e-3, "strength": 1e3},
        "rwalk": {"lr": 3e-3, "strength": 1.0},
        "gem": {"epochs": 6, "lr": 3e-3, "margin": 0.0},
        "icarl": {"epochs": 6, "lr": 3e-3, "distillation": 3.0},
        "pnn": {"epochs": 6, "batch_size": 64, "lr": 3e-3},
    },
    "ta-smnist": {
        "finetune": {"lr": 3.33e-4, "mask": "own"},
        "er": {"final_steps": 200},
        "der++": {"final_steps": 200},
        "ewc": {"mask": "own"},
        "ewc-online": {"mask": "own"},
        "si": {"mask": "own", "strength": 0.1},
        "lp": {"mask": "own"},
        "gem": {"final_steps": 200, "margin": 0.0},
        "icarl": {"final_steps": 200, "distillation": 0.333},
    },
}


def plain_settings(scenario: str, method: str, ours: Config) -> PlainConfig:
    """The settings of a method of plain networks; the -5k scenarios train longer on less.

    A scenario without settings here has RCL-CPB's size, stored images and passes over the data.
    """
    name = scenario.removesuffix("-5k")
    alike = PlainConfig(ours.hidden, ours.epochs, ours.batch_size, memory=ours.coreset)
    config = replace(BASES.get(name, alike), **CHANGES.get(name, {}).get(method, {}))
    if name == scenario:
        return config
    return replace(config, epochs=3 * config.epochs, batch_size=min(64, config.batch_size))
