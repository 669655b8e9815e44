"""Settings of the methods with natural-gradient steps: ours, chosen on validation data.

What each changes of a scenario's preset, with stored images ("natural") and with none at all
("memoryless"). How they were found is in the book's appendix B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STEPS: dict[str, Any] = {
    "optimiser": "natural",
    "sampling": "local",
    "lr_mu": 0.02,
    "lr_rho": 0.02,
}
_MEMORYLESS = _STEPS | {"coreset": 0, "replay": False, "new_into_old": "none"}
_STORED = _STEPS | {
    "coreset_choice": "medoids",
    "stored_targets": "answers",
    "replay": False,
    "replay_mix": 64,
}
_NO_GROWTH = {"new_into_old": "zero", "grow": False}
# one head for classes that come: fitted on what is stored, distorted, as in the plus settings
_TOGETHER = {
    "new_into_old": "zero",
    "coreset_choice": "medoids",
    "hidden": (86, 86),
    "gamma": (0.02,),
    "distort": "elastic",
    "epochs": 10,
    "batch_size": 256,
    "replay_steps": 1000,
    "replay_kl": 0.0,
}
_COLOUR = {"lr_mu": 0.015, "epochs": 30, "batch_size": 32}
SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "natural": {
        "pmnist": _STORED
        | {"new_into_old": "none", "lr_mu": 0.01, "gamma": (0.45,), "prior_strength": 3.0},
        "pmnist-shared": _STORED | {"new_into_old": "zero", "gamma": (0.25,)},
        "mh-smnist": _STORED
        | {
            "stored_targets": "labels",
            "new_into_old": "none",
            "hidden": (42, 42),
            "prior_strength": 30.0,
            "augment": "shift",
            "distort": "shift",
            "epochs": 30,
            "kl_weight": 0.1,
        },
        "ta-smnist": _STEPS | _TOGETHER,
        "mh-cifar100": _STORED | _COLOUR | {"new_into_old": "none", "replay_mix": 16},
        "ta-cifar100": _STEPS | _COLOUR | {"new_into_old": "zero", "epochs": 10},
        "mnist-svhn-cifar10": _STORED | _COLOUR | {"new_into_old": "none", "epochs": 8},
    },
    "memoryless": {
        "pmnist": _MEMORYLESS | {"gamma": (0.8,), "prior_strength": 3.0},
        # with one head and nothing stored, growing only harms: none of it
        "pmnist-shared": _MEMORYLESS | _NO_GROWTH | {"hidden": (132, 132)},
        "mh-smnist": _MEMORYLESS | {"hidden": (44, 44), "prior_strength": 30.0, "epochs": 20},
        "ta-smnist": _MEMORYLESS | {"new_into_old": "zero"},
        "mh-cifar100": _MEMORYLESS | _COLOUR,
        "ta-cifar100": _MEMORYLESS | _COLOUR | {"new_into_old": "zero", "epochs": 10},
        "mnist-svhn-cifar10": _MEMORYLESS | _COLOUR | {"epochs": 8},
    },
}
_NOT_SEARCHED = {"natural": _STORED, "memoryless": _MEMORYLESS}


def changes(family: str, scenario: str) -> Mapping[str, Any]:
    """What a family changes of a scenario's preset; what all share, if none were searched for."""
    return SETTINGS[family].get(scenario, _NOT_SEARCHED[family])
