"""The registry's scenarios: how each is made and learned, and what the paper says of it.

make_scenario("ta-smnist-5k") -> Scenario
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rclcpb import checks, paper, scenarios
from rclcpb.files import RclCpbError
from rclcpb.images import Images, load_images
from rclcpb.paper import PaperRow
from rclcpb.scenarios import Scenario
from rclcpb_core import Config

Folder: TypeAlias = str | Path | None


@dataclass(frozen=True)
class ScenarioEntry:
    """A scenario: how it is made, how it is learned, what the paper says of it."""

    title: str
    table: str  #: the table of the command line that it stands in
    make: Callable[[str, int, Folder], Scenario]  #: of its name, a seed, the data's folder
    config: Config  #: rcl-cpb: the paper's beta, gamma, first size and coreset; the rest is ours
    plus: Mapping[str, Any]  #: what the plus methods change
    paper: tuple[PaperRow, ...] = ()  #: the first row of a method is its main one


def _images(name: str, root: Folder) -> Images:
    """An image set that nobody else has: scenarios need not copy it."""
    return Images(*map(checks.own, load_images(name, root)))


def _mnist(make: Callable[..., Scenario], heads: str) -> Callable[[str, int, Folder], Scenario]:
    """A scenario on MNIST, or, under a name with -5k, on 5,000 embedded digits."""

    def made(name: str, seed: int, root: Folder) -> Scenario:
        images = _images("mnist5k" if name.endswith("-5k") else "mnist", root)
        seeds = {"seed": seed} if make is scenarios.permuted_mnist else {}
        return make(images, heads=heads, name=name, **seeds)

    return made


def _cifar100(heads: Literal["multi", "single"]) -> Callable[[str, int, Folder], Scenario]:
    return lambda name, seed, root: scenarios.split_cifar100(
        _images("cifar100", root), heads, seed, name
    )


def _sequence(name: str, seed: int, root: Folder) -> Scenario:
    mnist, svhn, cifar10 = (_images(one, root) for one in ("mnist", "svhn", "cifar10"))
    return scenarios.mnist_svhn_cifar10(mnist, svhn, cifar10, name)


_DIGITS = Config(lr_mu=3e-3, lr_rho=3e-3, decay=True)
_COLOUR = Config(
    mu_init="fan-in",
    rho_init=-8.0,
    kl_weight=0.1,
    epochs=20,
    batch_size=32,
    decay=True,
    augment="crop-flip",
    distort="crop-flip",
)
_PMNIST = replace(_DIGITS, hidden=(32, 32), beta=(1e-5,), gamma=(0.3,), coreset=200)
# what rcl-cpb-plus changes on digits: ours, recorded and tabled apart
_PLUS = {"sampling": "local", "new_into_old": "zero", "coreset_choice": "medoids"}

SCENARIOS: dict[str, ScenarioEntry] = {
    "pmnist": ScenarioEntry(
        "permuted MNIST, a head a task",
        "mnist",
        _mnist(scenarios.permuted_mnist, "multi"),
        replace(_PMNIST, replay_kl=0.1),
        _PLUS | {"gamma": (0.17,), "kl_weight": 0.3, "replay_mix": 32},
        paper.PMNIST,
    ),
    "pmnist-shared": ScenarioEntry(
        "permuted MNIST, one head",
        "mnist",
        _mnist(scenarios.permuted_mnist, "single"),
        replace(_PMNIST, replay_kl=0.0, replay_steps=200),
        _PLUS | {"gamma": (0.25,), "replay_mix": 64},
    ),
    "mh-smnist": ScenarioEntry(
        "split MNIST, a head a task",
        "mnist",
        _mnist(scenarios.split_mnist, "multi"),
        replace(
            _DIGITS,
            hidden=(64, 64),
            beta=(1e-5,),
            gamma=(0.2,),
            coreset=40,
            epochs=20,
            replay_steps=50,
            replay_lr=3e-3,
            replay_kl=0.1,
        ),
        _PLUS
        | {
            "hidden": (44, 44),
            "gamma": (0.3,),
            "augment": "shift",
            "distort": "elastic",
            "epochs": 30,
            "kl_weight": 0.3,
            "replay_mix": 64,
            "replay_steps": 200,
            "replay_lr": 1e-3,
            "replay_newest": False,
            "test_samples": 20,
        },
        paper.MH_SMNIST,
    ),
    "ta-smnist": ScenarioEntry(
        "split MNIST, one head",
        "mnist",
        _mnist(scenarios.split_mnist, "single"),
        replace(
            _DIGITS,
            beta=(10**-2.5,),
            gamma=(0.1,),
            coreset=20,
            epochs=4,
            batch_size=32,
            replay_steps=200,
            replay_kl=0.01,
        ),
        _PLUS
        | {
            "hidden": (86, 86),
            "distort": "elastic",
            "epochs": 10,
            "batch_size": 256,
            "lr_mu": 1e-3,
            "lr_rho": 1e-3,
            "replay_steps": 1000,
            "replay_kl": 0.0,
        },
        paper.TA_SMNIST,
    ),
    "mh-cifar100": ScenarioEntry(
        "split CIFAR-100, a head a task",
        "cifar100",
        _cifar100("multi"),
        replace(
            _COLOUR,
            beta=(1e-4,),
            gamma=(0.15,),
            coreset=256,
            replay_epochs=25,
            replay_batch=64,
            replay_kl=0.03,
        ),
        {"new_into_old": "zero", "epochs": 30, "test_mirror": True},
        paper.MH_CIFAR100,
    ),
    "ta-cifar100": ScenarioEntry(
        "split CIFAR-100, one head",
        "cifar100",
        _cifar100("single"),
        replace(
            _COLOUR,
            hidden=(256, 256),
            beta=(1e-2,),
            gamma=(0.15,),
            coreset=256,
            epochs=10,
            distance_classes="seen",
            replay_steps=600,
            replay_batch=64,
            replay_kl=0.003,
        ),
        {
            "new_into_old": "zero",
            "coreset_choice": "balanced",
            "hidden": (208, 208),
            "epochs": 6,
            "replay_steps": 800,
            "replay_kl": 0.1,
            "test_mirror": True,
        },
        paper.TA_CIFAR100,
    ),
    "mnist-svhn-cifar10": ScenarioEntry(
        "MNIST, SVHN, CIFAR-10",
        "sequence",
        _sequence,
        replace(
            _COLOUR,
            hidden=(256, 256),
            beta=(1e-9,),
            gamma=(0.08,),
            coreset=512,
            epochs=4,
            kl_weight=1.0,
            replay_steps=300,
            replay_kl=0.1,
        ),
        {
            "new_into_old": "zero",
            "kl_weight": 0.1,
            "epochs": 8,
            "batch_size": 64,
            "lr_mu": 1.4e-3,
            "lr_rho": 1.4e-3,
            "distort": "affine",
            "replay_newest": False,
            "replay_steps": 1000,
            "replay_batch": 64,
            "replay_kl": 0.01,
            "test_mirror": True,
        },
        paper.SEQUENCE,
    ),
}
SMALL = "-5k"  # the MNIST scenarios also on 5,000 embedded digits, which need no download
TABLES: dict[str, list[str]] = {}
for _name, _entry in SCENARIOS.items():
    TABLES.setdefault(_entry.table, []).append(_name)
TABLES["mnist-5k"] = [name + SMALL for name in TABLES["mnist"]]
NAMES = (*SCENARIOS, *TABLES["mnist-5k"])


def entry(scenario: str) -> ScenarioEntry:
    """A scenario's entry, also under its name with -5k."""
    known = SCENARIOS.get(scenario.removesuffix(SMALL))
    if known is None or (scenario.endswith(SMALL) and known.table != "mnist"):
        raise RclCpbError(f"no scenario {scenario!r}: choose from {', '.join(NAMES)}.")
    return known


def make_scenario(name: str, seed: int = 0, root: Folder = None) -> Scenario:
    """A scenario by its name; permutations and class orders are fixed by the seed."""
    checks.whole("seed", seed)
    return entry(name).make(name, seed, root)
