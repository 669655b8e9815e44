"""Settings: wrong ones are one sentence, whole ones survive JSON, old records are read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import tiny

from rclcpb.files import RclCpbError
from rclcpb.settings import Settings
from rclcpb_core import Config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # out of range
        ({"hidden": ()}, r"hidden=\(\): must be above 0"),
        ({"hidden": (8, 0)}, r"hidden=\(8, 0\): must be above 0"),
        ({"beta": -0.1}, "beta.*0 or more"),
        ({"beta": ()}, "beta"),
        ({"gamma": (0.1, -1.0)}, "gamma.*0 or more"),
        ({"epochs": 0}, "epochs=0: must be above 0"),
        ({"batch_size": -4}, "batch_size"),
        ({"lr_mu": 0.0}, "lr_mu"),
        ({"prior_var": 0.0}, "prior_var"),
        ({"coreset": -1}, "coreset=-1: must be 0 or more"),
        ({"kl_weight": -1.0}, "kl_weight"),
        # not finite
        ({"beta": math.nan}, "beta=nan: must be a finite number"),
        ({"gamma": math.inf}, "gamma=inf: must be a finite number"),
        ({"lr_rho": math.nan}, "lr_rho=nan: must be a finite number"),
        ({"rho_init": -math.inf}, "rho_init=-inf: must be a finite number"),
        ({"epochs": math.inf}, "epochs=inf: must be a whole number"),
        # of another type
        ({"prune": "no"}, "prune='no': must be True or False"),
        ({"prune": 0, "grow": False}, "prune=0: must be True or False"),
        ({"decay": None}, "decay=None: must be True or False"),
        ({"epochs": 2.5}, "epochs=2.5: must be a whole number"),
        ({"epochs": "3"}, "epochs='3': must be a whole number"),
        ({"epochs": True}, "epochs=True: must be a whole number"),
        ({"epochs": None}, "epochs=None: must be a whole number"),
        ({"lr_mu": "fast"}, "lr_mu='fast': must be a finite number"),
        ({"lr_mu": [0.1]}, r"lr_mu=\[0.1\]: must be a finite number"),
        ({"hidden": (8.5, 8)}, "hidden=8.5: must be a whole number"),
        ({"hidden": "128"}, "hidden='128': must be a whole number"),
        ({"gamma": (0.1, "x")}, "gamma='x': must be a finite number"),
        # no such choice
        ({"sampling": "flipout"}, "sampling='flipout': choose from weight, local"),
        ({"coreset_choice": "kcentre"}, "coreset_choice='kcentre': choose from random"),
        ({"mu_init": "he"}, "mu_init"),
        ({"new_into_old": 0}, "new_into_old=0: choose from random, zero"),
        ({"distort": "rotate"}, "distort='rotate': choose from none, shift"),
        # not together
        ({"beta": (1.0, 2.0, 3.0)}, "3 values for 2 hidden layers"),
        ({"prune": False, "grow": True}, "needs prune=True"),
        ({"coreset": 0, "replay_mix": 4}, "needs a coreset"),
    ],
)
def test_bad_settings_are_one_clear_sentence(changes: dict, message: str) -> None:
    with pytest.raises(RclCpbError, match=message) as caught:
        tiny.config(**changes)
    assert "\n" not in str(caught.value)


def test_numpys_numbers_lone_numbers_and_lists_are_welcome() -> None:
    config = Config(
        hidden=[np.int64(12), 8],
        epochs=np.int64(3),
        lr_mu=np.float32(0.5),
        kl_weight=1,
        batch_size=32.0,
        beta=0,
        gamma=np.float64(0.25),
    )
    plain = Config(
        hidden=(12, 8),
        epochs=3,
        lr_mu=0.5,
        kl_weight=1.0,
        batch_size=32,
        beta=(0.0,),
        gamma=(0.25,),
    )
    assert config == plain and hash(config) == hash(plain)
    for field in fields(Config):  # and are Python's own from here on
        assert type(getattr(config, field.name)) is type(getattr(plain, field.name))
    assert type(config.hidden[0]) is int and type(config.beta[0]) is float
    assert config.as_json() == plain.as_json()


def test_thresholds_are_one_for_all_layers_or_one_for_each() -> None:
    config = Config(beta=0.1, gamma=(0.2, 0.3))
    assert [config.threshold("beta", k) for k in range(2)] == [0.1, 0.1]
    assert [config.threshold("gamma", k) for k in range(2)] == [0.2, 0.3]
    settings = config.layer_settings()._asdict()
    assert all(getattr(config, name) == value for name, value in settings.items())


def test_settings_survive_json() -> None:
    config = tiny.config(beta=(0.1, 0.2), gamma=0.3, sampling="local")
    values = json.loads(json.dumps(asdict(config)))
    assert values == config.as_json() and Config.from_json(values) == config
    values.pop("beta")  # a record older than the field
    assert Config.from_json(values) == replace(config, beta=Config().beta)


@pytest.mark.parametrize(
    ("retired", "accepted"),
    [
        ({"replay_views": 0}, True),
        ({"coreset_only": False}, True),
        ({"coreset_only": True}, True),  # now the method of that name says so
        ({"replay_views": 3}, False),  # what no code does any more
        ({"speed": 1}, False),
        ({"speed": None}, False),
    ],
)
def test_fields_of_other_versions(retired: dict[str, Any], accepted: bool) -> None:
    """Those that changed nothing are read; the others are named."""
    config = tiny.config()
    if accepted:
        assert Config.from_json(config.as_json() | retired) == config
        return
    (name,) = retired
    with pytest.raises(RclCpbError, match=rf"another version \(fields: {name}\)"):
        Config.from_json(config.as_json() | retired)


@dataclass(frozen=True)
class Other(Settings):
    """The settings of a method of one's own."""

    strength: float = 1.0
    rounds: tuple[int, ...] = (3,)
    kind: Literal["soft", "hard"] = "soft"

    RETIRED: ClassVar = {"old": (7,)}
    POSITIVE: ClassVar = ("rounds",)
    NOT_NEGATIVE: ClassVar = ("strength",)


def test_other_methods_settings_are_checked_alike() -> None:
    assert Other(strength=0, rounds=2) == Other(0.0, (2,))
    assert Other.from_json({"rounds": [4], "old": 7}) == Other(rounds=(4,))
    for changes in ({"strength": -1}, {"rounds": (1, 0)}, {"kind": "firm"}, {"strength": "1"}):
        (name,) = changes
        with pytest.raises(RclCpbError, match=f"{name}="):
            Other(**changes)
