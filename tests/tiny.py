"""Scenarios, configs and networks small enough to run in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import rclcpb_core as core
from rclcpb import scenarios

PAIRS = ((0, 1), (2, 3), (4, 5))


def images(
    classes: Sequence[int], n: int, rng: np.random.Generator, size: int = 6, channels: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """n images a class: faint noise, and a bright spot whose place is the class's."""
    y = np.repeat(np.asarray(classes), n)
    x = rng.integers(0, 60, (len(y), size, size), dtype=np.uint8)
    for image, label in zip(x, y, strict=True):
        row, column = divmod(int(label) % (size * size // 4), size // 2)
        image[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 255
    order = rng.permutation(len(y))
    x, y = x[order], y[order]
    return (np.repeat(x[..., None], channels, 3) if channels else x), y


def arrays(classes: Sequence[int], n: int = 24, seed: int = 0, **kind: int) -> tuple:
    rng = np.random.default_rng([seed, *classes])
    return (*images(classes, n, rng, **kind), *images(classes, n // 2, rng, **kind))


def scenario(
    tasks: Sequence[Sequence[int]] = PAIRS,
    heads: Any = "single",
    trunk: bool = False,
    n: int = 24,
    seed: int = 0,
) -> scenarios.Scenario:
    """Tasks that even a tiny network can learn."""
    kind = {"size": 8, "channels": 3} if trunk else {}
    made = [arrays(classes, n, seed, **kind) for classes in tasks]
    return scenarios.from_arrays(made, heads, trunk, name=f"tiny-{heads}")


def config(**changes: Any) -> core.Config:
    """A config for tiny scenarios; a few epochs are enough to learn them."""
    small: dict[str, Any] = {
        "hidden": (10, 8),
        "coreset": 6,
        "epochs": 3,
        "batch_size": 16,
        "lr_mu": 0.02,
        "replay_steps": 20,
        "replay_lr": 0.01,
        "test_samples": 4,
        "mu_init": "fan-in",
    }
    return core.Config(**(small | changes))


def network(
    settings: core.Config | None = None,
    trunk: bool = False,
    heads: Sequence[int] = (3, 2),
    spread: bool = True,
) -> core.ProgressiveBNN:
    """A small network; with `spread`, every posterior and prior is its own number."""
    shape = (3, 8, 8) if trunk else (1, 6, 6)
    settings = settings or config()
    net = core.ProgressiveBNN(shape, settings.hidden, settings.layer_settings(), trunk)
    for classes in heads:
        net.add_head(classes)
    if spread:
        for layer in layers(net):
            spread_out(layer)
    return net


@torch.no_grad()
def spread_out(layer: core.BayesLayer) -> None:
    """Random posterior and prior, away from every special value."""
    layer.rho.add_(torch.randn_like(layer.rho))
    layer.prior_mu.normal_()
    layer.prior_rho.normal_()


def layers(net: core.ProgressiveBNN) -> list[core.BayesLayer]:
    return [m for m in net.modules() if isinstance(m, core.BayesLayer)]


def inputs(net: core.ProgressiveBNN, n: int = 7) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8) if len(net.trunk) else torch.randn(n, 36)


def snapshot(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every number of a network or layer, copied."""
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
