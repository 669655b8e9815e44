"""RCL-CPB: a Bayesian network that prunes and grows itself from task to task.

The method of *Robust Continual Learning through a Comprehensively Progressive
Bayesian Neural Network* (Guo, Wong and Ramasamy), in one module that reads top to
bottom as the paper does:

    Config - Bayesian layers - network - structure (Eqs. 4-7) - coreset
    - training (Eq. 8) - Algorithm 1 - metrics (Eq. 9) - record

Images, scenarios and distortions are in rclcpb_data.py; the fast path of training in
rclcpb_fast.py; files and the command line, which starts here (`python rclcpb_core.py
--help`), in rclcpb_runs.py.

What the paper leaves open, and what is done here (more in the book's appendix):

* epochs, learning rates, batch size, optimiser (Adam), Monte Carlo samples: `PRESETS`,
  found on validation data;
* "N(0, 0.1)" of mu: 0.1 is read as a deviation; beta "e^-5" is 10^-5;
* Eq. 5: dist is the absolute difference of mean ReLU activations under the mean
  weights, over the classes of the new task (`distance_classes="task"`) or over all
  classes of the output layer, the old ones through the coreset ("seen");
* Eq. 6: the constant is 1; Eq. 7: a negative alpha is 0; alpha_req is n_init times the
  geometric mean of the task's input-size ratio and class-count ratio to task 1;
* pruning looks at the hidden layers' weights; biases, convolutions and heads stay;
* a re-initialised or new weight gets task 1's prior, N(0, prior_var);
* replay starts from the posterior it finds, takes that as its prior, and its KL has a
  weight of its own (`replay_kl`, 0 drops it); in single-head scenarios what replay
  learned goes on to the next task, in multi-head ones it serves one evaluation only.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from rclcpb_data import (  # noqa: F401 (the data side: a notebook needs one import)
    DISTORTIONS,
    IMAGE_SETS,
    SCENARIOS,
    Affine,
    Images,
    RclCpbError,
    Scenario,
    Task,
    data_root,
    distort,
    from_arrays,
    holdout,
    load_images,
    make_scenario,
    mnist_svhn_cifar10,
    permuted_mnist,
    split_cifar100,
    split_mnist,
)
from rclcpb_fast import FlatPosterior, keep_freed_memory

__version__ = "0.1.0"
CORE_SHA256 = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # as imported
Shape: TypeAlias = tuple[int, int, int]  # of an image: channels, height, width
Device: TypeAlias = "torch.device | None"


# ------------------------------------------------------------------------ configuration


@dataclass(frozen=True)
class Config:
    """Everything a run depends on besides its scenario and seed."""

    # the network
    hidden: tuple[int, ...] = (128, 128)  # paper: neurons at task 1, n_init
    mu_init: Literal["normal", "fan-in"] = "normal"  # paper: normal; fan-in (He) is ours
    mu_scale: float = 0.1  # paper: N(0, 0.1); only for mu_init="normal"
    rho_init: float = -6.0  # paper: -6 or -3; sigma = exp(rho / 2)
    prior_var: float = 1.0  # ours (VCL's): task 1's prior is N(0, prior_var)
    sampling: Literal["weight", "local"] = "weight"  # paper: weight; local is ours
    # structure
    prune: bool = True  # paper; False with grow=False is VCL (-AP)
    grow: bool = True  # paper; False is the ablation -A
    beta: tuple[float, ...] = (1e-5,)  # paper: SNR threshold, one or one a hidden layer
    gamma: tuple[float, ...] = (0.1,)  # paper: distance threshold, one or one a layer
    distance_classes: Literal["task", "seen"] = "task"  # ours: which classes Eq. 5 pairs
    new_into_old: Literal["random", "zero"] = "random"  # paper: random; zero is ours
    # stored samples
    coreset: int = 40  # paper: samples stored a task
    coreset_choice: Literal["random", "balanced", "k-center", "medoids"] = "random"  # paper: random
    coreset_only: bool = False  # ours: learn from the stored samples alone (a control)
    # single head: the paper's three strategies
    reinit_head: bool = True  # paper: fresh output layer before task t
    restore_head: bool = True  # paper: old classes' rows come back after training
    replay: bool = True  # paper: fit the whole coreset (multi-head: at evaluation)
    replay_newest: bool = True  # paper: multi-head, also for the task just learned
    # training: all ours, the paper gives none of it
    epochs: int = 10
    batch_size: int = 256
    lr_mu: float = 1e-3
    lr_rho: float = 1e-3
    decay: bool = False  # both rates fall linearly towards 0 within each fit
    kl_weight: float = 1.0  # 1 is Eq. 8; smaller tempers the posterior
    replay_steps: int = 100
    replay_epochs: int = 0  # n: so many passes over what is stored, in place of steps
    replay_batch: int = 256
    replay_lr: float = 1e-3
    replay_kl: float = 0.0
    replay_views: int = 0  # 0: replay fits convolutions, too; n: they stay as they are,
    # and their features of n distorted versions of each stored image are cached
    replay_mix: int = 0  # stored images added to each of the task's batches
    distort: Literal["none", "shift", "affine", "elastic", "crop-flip"] = "none"  # stored images
    augment: Literal["none", "shift", "affine", "elastic", "crop-flip"] = "none"  # training images
    test_samples: int = 10  # Monte Carlo samples a prediction
    test_mirror: bool = False  # half of them see colour images mirrored

    def __post_init__(self) -> None:
        for name in ("hidden", "beta", "gamma"):  # a lone number stands for every layer
            value = getattr(self, name)
            value = tuple(value) if isinstance(value, Sequence) else (value,)
            object.__setattr__(self, name, value)
        if not self.hidden or min(self.hidden) < 1:
            raise RclCpbError(f"hidden={self.hidden}: give each layer at least one neuron.")
        for name in ("beta", "gamma"):
            value = getattr(self, name)
            if len(value) not in (1, len(self.hidden)):
                raise RclCpbError(
                    f"{name} has {len(value)} values for {len(self.hidden)} hidden"
                    " layers: give one for all or one for each."
                )
            if not all(0 <= v < math.inf for v in value):
                raise RclCpbError(f"{name}={value}: a threshold must be 0 or more.")
        if self.grow and not self.prune:
            raise RclCpbError("grow=True needs prune=True; VCL is grow=False, prune=False.")
        positive = (
            "epochs",
            "batch_size",
            "replay_batch",
            "test_samples",
            "prior_var",
            "lr_mu",
            "lr_rho",
            "replay_lr",
            "mu_scale",
        )
        for name in positive:
            if not 0 < getattr(self, name) < math.inf:
                raise RclCpbError(f"{name}={getattr(self, name)}: must be above 0.")
        for name in (
            "coreset",
            "replay_steps",
            "replay_epochs",
            "replay_views",
            "replay_mix",
            "kl_weight",
            "replay_kl",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise RclCpbError(f"{name}={getattr(self, name)}: must be 0 or more.")
        if (self.replay_mix or self.coreset_only) and not self.coreset:
            raise RclCpbError("replay_mix and coreset_only need a coreset above 0.")
        for name, hint in get_type_hints(Config).items():
            choices = get_args(hint) if "Literal" in str(hint) else ()
            if choices and getattr(self, name) not in choices:
                raise RclCpbError(
                    f"{name}={getattr(self, name)!r}: choose from {', '.join(choices)}."
                )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Config:
        """The Config a record holds; a field younger than it has its default."""
        if odd := set(values) - {f.name for f in dataclasses.fields(cls)}:
            names = ", ".join(sorted(odd))
            raise RclCpbError(f"this config is from another version (fields: {names}).")
        fixed: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fixed)

    def threshold(self, name: Literal["beta", "gamma"], layer: int) -> float:
        values: tuple[float, ...] = getattr(self, name)
        return values[layer % len(values)]


# The paper's beta, gamma, first sizes and coreset sizes; the rest is ours.
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
PRESETS: dict[str, Config] = {
    "pmnist": replace(
        _DIGITS, hidden=(32, 32), beta=(1e-5,), gamma=(0.3,), coreset=200, replay_kl=0.1
    ),
    "mh-smnist": replace(
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
    "ta-smnist": replace(
        _DIGITS,
        beta=(10**-2.5,),
        gamma=(0.1,),
        coreset=20,
        epochs=4,
        batch_size=32,
        replay_steps=200,
        replay_kl=0.01,
    ),
    "mh-cifar100": replace(
        _COLOUR,
        beta=(1e-4,),
        gamma=(0.15,),
        coreset=256,
        replay_epochs=25,
        replay_batch=64,
        replay_kl=0.03,
    ),
    "ta-cifar100": replace(
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
    "mnist-svhn-cifar10": replace(
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
}
PRESETS["pmnist-shared"] = replace(PRESETS["pmnist"], replay_kl=0.0, replay_steps=200)

# What rcl-cpb-plus changes in a scenario: ours, recorded and tabled apart.
_PLUS = {"sampling": "local", "new_into_old": "zero", "coreset_choice": "medoids"}
PLUS: dict[str, dict[str, Any]] = {
    "pmnist": _PLUS | {"gamma": (0.17,), "kl_weight": 0.3, "replay_mix": 32},
    "pmnist-shared": _PLUS | {"gamma": (0.25,), "replay_mix": 64},
    "mh-smnist": _PLUS
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
    "ta-smnist": _PLUS
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
    "mh-cifar100": {"new_into_old": "zero", "epochs": 30, "test_mirror": True},
    "ta-cifar100": {
        "new_into_old": "zero",
        "coreset_choice": "balanced",
        "hidden": (208, 208),
        "epochs": 6,
        "replay_steps": 800,
        "replay_kl": 0.1,
        "test_mirror": True,
    },
    "mnist-svhn-cifar10": {
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
}

METHODS: dict[str, dict[str, Any]] = {
    "rcl-cpb": {},
    "rcl-cpb-A": {"grow": False},
    "vcl": {"prune": False, "grow": False},
    "rcl-cpb-plus": {},
    "vcl-plus": {"prune": False, "grow": False},
    "coreset-only": {"prune": False, "grow": False, "coreset_only": True},
}


def preset(scenario: str, method: str = "rcl-cpb") -> Config:
    """The Config of a method on a scenario; the -5k ones train longer on less."""
    name = scenario.removesuffix("-5k")
    if name not in PRESETS or method not in METHODS:
        raise RclCpbError(
            f"no preset for {method!r} on {scenario!r}: scenarios are"
            f" {', '.join(PRESETS)} (the MNIST ones also with -5k), methods"
            f" {', '.join(METHODS)}."
        )
    config = PRESETS[name]
    if method.endswith("-plus") or method == "coreset-only":
        config = replace(config, **PLUS.get(name, {}))
    if name != scenario:
        batch = min(64, config.batch_size)
        config = replace(config, epochs=3 * config.epochs, batch_size=batch)
    config = replace(config, **METHODS[method])
    if config.coreset_only:  # a fresh network a task needs more steps to get there
        config = replace(
            config, replay_steps=3 * config.replay_steps, replay_epochs=3 * config.replay_epochs
        )
    return config


# ---------------------------------------------------------------------- Bayesian layers


class BayesLayer(nn.Module):
    """Weights and biases as independent Gaussians q = N(mu, exp(rho)).

    `mu`, `rho`, `prior_mu` and `prior_rho` are one vector each, the weights first and
    then the biases, so that `FlatPosterior` can lay all layers end to end.
    """

    mu: Tensor
    rho: Tensor
    prior_mu: Tensor
    prior_rho: Tensor

    def __init__(
        self, weight_shape: tuple[int, ...], config: Config, device: Device = None
    ) -> None:
        super().__init__()
        self.config = config
        self.shape = weight_shape
        for name, value in self.fresh(weight_shape, device).items():
            if name in ("mu", "rho"):
                setattr(self, name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def fresh(self, shape: tuple[int, ...], device: Device) -> dict[str, Tensor]:
        """A new posterior and task 1's prior for weights and biases of this shape."""
        fan_in = math.prod(shape[1:])
        he = self.config.mu_init == "fan-in"
        deviation = math.sqrt(2 / fan_in) if he else self.config.mu_scale
        mu = deviation * torch.randn(math.prod(shape) + shape[0], device=device)
        if he:
            mu[-shape[0] :] = 0
        return {
            "mu": mu,
            "rho": torch.full_like(mu, self.config.rho_init),
            "prior_mu": torch.zeros_like(mu),
            "prior_rho": torch.full_like(mu, math.log(self.config.prior_var)),
        }

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """A vector like mu as (weights in their shape, biases)."""
        out = self.shape[0]
        return vector[:-out].view(self.shape), vector[-out:]

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        raise NotImplementedError

    def draw(self) -> Tensor:
        """The reparameterisation trick: w = mu + sigma * eps."""
        return self.mu + (self.rho / 2).exp() * torch.randn_like(self.mu)

    def forward(self, x: Tensor, sample: bool = True) -> Tensor:
        return self.operate(x, *self.split(self.draw() if sample else self.mu))

    def kl(self) -> Tensor:
        """KL(q || prior) in closed form, summed over the weights (Eq. 8)."""
        ratio = (self.rho - self.prior_rho).exp()
        distance = (self.mu - self.prior_mu) ** 2 / self.prior_rho.exp()
        return 0.5 * (ratio + distance - 1 - (self.rho - self.prior_rho)).sum()

    def snr(self) -> Tensor:
        """|mu| / sigma of every weight (Eq. 4), in the weights' shape."""
        return self.split(self.mu.abs() / (self.rho / 2).exp())[0]

    def posterior_becomes_prior(self) -> None:
        """q_{t-1} is the prior of task t."""
        self.prior_mu = self.mu.detach().clone()
        self.prior_rho = self.rho.detach().clone()

    def reinitialise(self, mask: Tensor) -> None:
        """Fresh posterior and prior where mask (weights' shape), the rest untouched."""
        mask = torch.cat([mask.flatten(), mask.new_zeros(self.shape[0])])
        for name, new in self.fresh(self.shape, self.mu.device).items():
            self.assign(name, torch.where(mask, new, getattr(self, name).detach()))

    def assign(self, name: str, value: Tensor) -> None:
        setattr(self, name, nn.Parameter(value) if name in ("mu", "rho") else value)


class BayesLinear(BayesLayer):
    """A fully connected layer; sampling="local" draws the noise for its outputs."""

    def __init__(self, n_in: int, n_out: int, config: Config, device: Device = None) -> None:
        super().__init__((n_out, n_in), config, device)

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Exact mean and variance of the outputs (n_out, B) for inputs x (B, n_in)."""
        weight, bias = self.split(self.mu)
        spread, bias_spread = self.split(self.rho.exp())
        mean = torch.addmm(bias[:, None], weight, x.t())
        return mean, torch.addmm(bias_spread[:, None], spread, (x * x).t())

    def forward(self, x: Tensor, sample: bool = True) -> Tensor:
        if not sample or self.config.sampling == "weight":
            return super().forward(x, sample)
        mean, variance = (moment.t() for moment in self.moments(x))  # (B, n_out)
        return mean + variance.sqrt() * torch.randn_like(mean)

    def grow(self, extra_in: int = 0, extra_out: int = 0, zero: bool = False) -> None:
        """Add columns and rows; old entries stay bit for bit, new ones are fresh.

        zero=True puts the means from new inputs into old outputs at 0, so that the
        layer computes what it did.
        """
        n_out, n_in = self.shape
        shape = (n_out + extra_out, n_in + extra_in)
        grown = self.fresh(shape, self.mu.device)
        for name, new in grown.items():
            weight, bias = new[: -shape[0]].view(shape), new[-shape[0] :]
            if zero and name == "mu":
                weight[:n_out, n_in:] = 0
            weight[:n_out, :n_in], bias[:n_out] = self.split(getattr(self, name).detach())
        self.shape = shape
        for name, new in grown.items():
            self.assign(name, new)


class BayesConv2d(BayesLayer):
    """A 3 x 3 convolution that keeps the size; one weight sample serves a batch."""

    def __init__(self, n_in: int, n_out: int, config: Config, device: Device = None) -> None:
        super().__init__((n_out, n_in, 3, 3), config, device)

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, padding=1)


# -------------------------------------------------------------------------- the network

TRUNK = (16, 32)  # paper: channels of the two convolutions
Act: TypeAlias = Callable[[int, BayesLayer, Tensor], Tensor]  # layer i on an input


class ProgressiveBNN(nn.Module):
    """An optional convolutional trunk, hidden layers that grow, and heads."""

    def __init__(
        self, image_shape: Shape, config: Config, trunk: bool = False, device: Device = None
    ) -> None:
        super().__init__()
        self.config, self.device = config, device or torch.device("cpu")
        channels, height, width = image_shape
        self.trunk = nn.ModuleList()
        if trunk:
            for out in TRUNK:
                self.trunk.append(BayesConv2d(channels, out, config, device))
                channels, height, width = out, height // 2, width // 2
        sizes = [channels * height * width, *config.hidden]
        self.hidden = nn.ModuleList(BayesLinear(a, b, config, device) for a, b in pairwise(sizes))
        self.heads = nn.ModuleList()

    def sizes(self) -> list[int]:
        return [layer.shape[0] for layer in self.hidden]

    def add_head(self, classes: int) -> None:
        width = self.hidden[-1].shape[0]
        self.heads.append(BayesLinear(width, classes, self.config, self.device))

    def trunk_features(self, x: Tensor, call: Act) -> Tensor:
        """What the first hidden layer gets: the images themselves without a trunk."""
        for i, layer in enumerate(self.trunk):
            x = F.relu(F.max_pool2d(call(i, layer, x), 2))  # either order is the same
        return x.flatten(1)

    def features(self, x: Tensor, call: Act, keep: list[Tensor] | None = None) -> Tensor:
        """Input to last hidden layer; `call(i, layer, x)` says how layer i acts."""
        x = self.trunk_features(x, call)
        for i, layer in enumerate(self.hidden, len(self.trunk)):
            x = F.relu(call(i, layer, x))
            if keep is not None:
                keep.append(x)
        return x

    def forward(self, x: Tensor, head: int = 0, sample: bool = True) -> Tensor:
        """Logits under one draw of the weights (or under their means)."""
        features = self.features(x, lambda i, layer, x: layer(x, sample))
        return self.heads[head](features, sample)

    def activations(self, x: Tensor) -> list[Tensor]:
        """Each hidden layer's activations under the mean weights."""
        kept: list[Tensor] = []
        self.features(x, lambda i, layer, x: layer(x, False), kept)
        return kept

    def logits(self, x: Tensor, head: int, samples: int) -> Tensor:
        """(M, B, classes): M draws of the weights for every input.

        For one input, the first linear layer's output is Gaussian with moments that
        need computing once; noise is drawn there, so that each input's predictive
        distribution stays exactly the same. Input b takes every 16th number of a row of
        normals, from place b on: its own M draws are independent, as they must be. All
        other layers draw their weights, which the batch shares. Inputs are columns
        here: few classes are multiplied and normalised faster so.
        """
        convolutions, linears = [*self.trunk], [*self.hidden, self.heads[head]]
        if not convolutions:
            mean, spread = linears.pop(0).moments(x)  # (width, B)
            spread.sqrt_()
            row = torch.randn(16 * samples * len(mean) + len(x), device=x.device)
            noise = row.unfold(0, len(x), 16)[: samples * len(mean)]
            noise = noise.view(samples, *mean.shape)
            first = torch.empty_like(mean)
        layers = convolutions + linears  # whose weights are drawn, as one vector
        mu = torch.cat([layer.mu for layer in layers])
        sigma = torch.cat([layer.rho for layer in layers]).div_(2).exp_()
        weights = torch.empty_like(mu)
        views = weights.split([len(layer.mu) for layer in layers])
        pieces = [layer.split(v) for layer, v in zip(layers, views, strict=True)]
        dense = pieces[len(convolutions) :]
        rooms = [x.new_empty(layer.shape[0], len(x)) for layer in linears]  # reused
        outputs = x.new_empty(samples, *rooms.pop().shape)
        for m in range(samples):
            torch.addcmul(mu, sigma, weights.normal_(), out=weights)
            if convolutions:
                h = x
                for layer, piece in zip(convolutions, pieces, strict=False):
                    h = F.relu_(F.max_pool2d(layer.operate(h, *piece), 2))
                h = h.flatten(1).t()
            else:
                h = torch.addcmul(mean, spread, noise[m], out=first)
            for room, (weight, bias) in zip([*rooms, outputs[m]], dense, strict=True):
                h = torch.addmm(bias[:, None], weight, F.relu_(h), out=room)
        return outputs.mT

    def kl(self) -> Tensor:
        layers = [m for m in self.modules() if isinstance(m, BayesLayer)]
        return torch.stack([layer.kl() for layer in layers]).sum()

    def posterior_becomes_prior(self) -> None:
        for module in self.modules():
            if isinstance(module, BayesLayer):
                module.posterior_becomes_prior()


CHUNK = 2**24  # numbers that the widest step of a prediction may hold


class Prediction(NamedTuple):
    probabilities: Tensor  # (N, classes), the mean over Monte Carlo samples
    entropy: Tensor  # of that mean: all uncertainty, in nats
    mutual_information: Tensor  # what of it is about the weights


@torch.no_grad()
def predict(
    net: ProgressiveBNN, x: Tensor, head: int = 0, samples: int = 10, mirror: bool = False
) -> Prediction:
    """Class probabilities from M weight samples, in chunks that bound the memory.

    With `mirror`, half of the samples (of two or more) see the images mirrored.
    """
    widest = max(
        samples * net.heads[head].shape[0],
        *net.sizes(),
        *(c * math.prod(x.shape[2:]) for c in TRUNK if net.trunk),
    )
    parts = []
    for piece in x.split(max(1, CHUNK // widest)):
        if mirror:
            half = samples // 2
            seen = [net.logits(piece, head, samples - half), net.logits(piece.flip(-1), head, half)]
            logits = torch.cat([part.mT for part in seen])
        else:
            logits = net.logits(piece, head, samples).mT
        log_p = logits.log_softmax(1)  # (M, classes, B)
        p = log_p.exp()
        mean = p.mean(0)
        total = torch.special.entr(mean).sum(0)
        parts.append((mean.t(), total, total + (p * log_p).sum(1).mean(0)))
    return Prediction(*(torch.cat(part) for part in zip(*parts, strict=True)))


# ------------------------------------------------------------------ structure: Eqs. 4-7


def prune(net: ProgressiveBNN, config: Config) -> list[Tensor]:
    """Re-initialise hidden weights with SNR < beta (Eq. 4); delta_k, their number."""
    deltas = []
    for k, layer in enumerate(net.hidden):
        mask = layer.snr() < config.threshold("beta", k)
        layer.reinitialise(mask)
        deltas.append(mask.sum())
    return deltas


# images of a task from which Eq. 5's means are taken; with convolutions they cost more
MEANS_FROM, MEANS_FROM_TRUNK = 2048, 1024
MEANS_FROM_STORED = 1792  # and of the stored ones, if they count, too


@torch.no_grad()
def class_means(net: ProgressiveBNN, x: Tensor, y: Tensor, classes: int) -> list[Tensor]:
    """phi of Eq. 5: mean activation (classes, neurons) of every hidden layer."""
    sums = [torch.zeros(classes, n, device=x.device) for n in net.sizes()]
    chunk = 256 if net.trunk else 2048  # what fits the cache is twice as fast
    for xs, ys in zip(x.split(chunk), y.split(chunk), strict=True):
        for total, activation in zip(sums, net.activations(xs), strict=True):
            total.index_add_(0, ys, activation)
    counts = torch.zeros(classes, device=x.device).index_add_(0, y, torch.ones_like(y).float())
    return [total / counts[:, None] for total in sums]


def class_distances(means: Tensor) -> Tensor:
    """Left side of Eq. 5: each neuron's mean |phi_i - phi_j| over pairs of classes."""
    tc = len(means)
    ordered = means.sort(0).values  # the i-th smallest is above i values and below the rest
    sign = 2 * torch.arange(tc, device=means.device) - (tc - 1)
    return 2 * (sign[:, None] * ordered).sum(0) / max(tc * (tc - 1), 1)


def shared_neurons(distances: Tensor, gamma: float) -> Tensor:
    """alpha_share: the neurons that tell the classes apart already (Eq. 5)."""
    return (distances > gamma).sum()


def pruned_neurons(delta: float, size_before: int) -> float:
    """alpha_prune: the pruned weights, counted in neurons of layer k (Eq. 6)."""
    return delta / size_before


def required_neurons(n_init: int, task: Task, first: Task) -> float:
    """alpha_req: n_init, scaled for another input size or number of classes."""
    ratio = (task.inputs / first.inputs) * (len(task.classes) / len(first.classes))
    return n_init * math.sqrt(ratio)


def neurons_to_add(required: float, shared: float, pruned: float) -> int:
    """alpha = alpha_req - (alpha_share + alpha_prune), never below 0 (Eq. 7)."""
    return max(0, round(required - (shared + pruned)))


def grow(net: ProgressiveBNN, alpha: Sequence[int]) -> None:
    """Add alpha_k neurons to hidden layer k: its rows, and the next layers' columns."""
    zero = net.config.new_into_old == "zero"
    extra_in = 0
    for layer, extra in zip(net.hidden, alpha, strict=True):
        if extra_in or extra:
            layer.grow(extra_in, extra, zero)
        extra_in = extra
    for head in net.heads:
        if extra_in:
            head.grow(extra_in, 0, zero)


def utilisation(net: ProgressiveBNN, config: Config) -> list[float]:
    """The share of each hidden layer's weights that are significant, SNR >= beta."""
    return [
        (layer.snr() >= config.threshold("beta", k)).float().mean().item()
        for k, layer in enumerate(net.hidden)
    ]


# ------------------------------------------------------------------------------ coreset


def choose_coreset(x: Tensor, y: Tensor, size: int, choice: str) -> Tensor:
    """Indices of the samples to store.

    "random" is the paper's; "k-center" is VCL's, each next sample the farthest from
    those before; "balanced" takes equally many of every class at random, "medoids" as
    many, but those nearest to the centres of k-means.
    """
    if size >= len(x):
        raise RclCpbError(
            f"a coreset of {size} from a task of {len(x)} samples leaves none to train"
            " on: choose a smaller coreset."
        )
    order = torch.randperm(len(x), device=x.device)
    if choice == "random":
        return order[:size]
    if choice == "k-center":
        return _k_center(x.flatten(1), size)
    labels, counts = y.unique(return_counts=True)
    chosen: dict[int, Tensor] = {}
    for i in counts.argsort(stable=True).tolist():  # a small class leaves room
        share = min(-(-size // (len(labels) - len(chosen))), int(counts[i]))
        size, mine = size - share, order[y[order] == labels[i]]
        medoids = choice == "medoids" and share
        pick = _medoids(x[mine].flatten(1), share) if medoids else slice(share)
        chosen[i] = mine[pick]
    return torch.cat([chosen[i] for i in sorted(chosen)])


def _k_center(x: Tensor, size: int) -> Tensor:
    """Greedy k-center, from a random first sample."""
    chosen = [int(torch.randint(len(x), ()))] if size else []
    distance = torch.full((len(x),), math.inf, device=x.device)
    while len(chosen) < size:
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(1))
        distance[chosen[-1]] = -1  # no sample twice, even where images are equal
        chosen.append(int(distance.argmax()))
    return torch.tensor(chosen, dtype=torch.long, device=x.device)


def _medoids(x: Tensor, size: int, rounds: int = 20) -> Tensor:
    """k-means from the first samples, then the sample nearest to each centre."""
    centres = x[:size].clone()
    for _ in range(rounds):
        nearest = torch.cdist(x, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        counts = torch.bincount(nearest, minlength=size)[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    distance, chosen = torch.cdist(x, centres), []
    for k in range(size):  # a sample serves one centre only
        chosen.append(int(distance[:, k].argmin()))
        distance[chosen[-1]] = math.inf
    return torch.tensor(chosen, dtype=torch.long, device=x.device)


# ---------------------------------------------------------------------- training: Eq. 8


class Phase(NamedTuple):
    """One fit: how many steps a round, and with what."""

    name: str
    rounds: list[int]
    batch: int
    lr_mu: float
    lr_rho: float
    kl_weight: float  # of the KL, already divided by the number of samples
    augment: str  # distortion of the images fitted
    distort: str  # and of stored images mixed in

    @staticmethod
    def training(config: Config, samples: int) -> Phase:
        """Eq. 8 over the task's data: a round is an epoch."""
        rounds = [math.ceil(samples / config.batch_size)] * config.epochs
        return Phase(
            "train",
            rounds,
            config.batch_size,
            config.lr_mu,
            config.lr_rho,
            config.kl_weight / samples,
            config.augment,
            config.distort,
        )

    @staticmethod
    def replaying(config: Config, samples: int, name: str = "replay") -> Phase:
        """Eq. 8 over stored samples: rounds of at most 100 steps, or epochs."""
        whole, rest = divmod(config.replay_steps, 100)
        rounds = [100] * whole + ([rest] if rest else [])
        if config.replay_epochs:
            rounds = [math.ceil(samples / config.replay_batch)] * config.replay_epochs
        ratio = config.lr_rho / config.lr_mu
        return Phase(
            name,
            rounds,
            config.replay_batch,
            config.replay_lr,
            config.replay_lr * ratio,
            config.replay_kl / max(samples, 1),
            config.distort,
            "none",
        )


def rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index], as x lies in memory: index_select alone would undo channels last."""
    if x.dim() == 2:
        return x.index_select(0, index)
    return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)


class Samples(NamedTuple):
    """Inputs, their columns in a head, which head, how pixels are shuffled, and whether
    a mirrored image keeps its class."""

    x: Tensor
    y: Tensor
    head: int = 0
    pixels: Tensor | None = None
    mirror: bool = True

    def take(self, index: Tensor, shape: Shape, kind: str) -> Samples:
        """A batch, its images distorted (in their order before any shuffle)."""
        x, y = rows(self.x, index), self.y.index_select(0, index)
        if kind == "none":
            return self._replace(x=x, y=y)
        if self.pixels is None:
            return self._replace(x=distort(x, shape, kind, self.mirror), y=y)
        x = distort(x[:, self.pixels.argsort()], shape, kind, self.mirror)
        return self._replace(x=x[:, self.pixels], y=y)


def batches(samples: int, size: int, steps: int, device: torch.device) -> Iterator[Tensor]:
    """Indices of `steps` batches: a shuffle of the samples after another."""
    left = 0
    while steps:
        if not left:
            order = torch.randperm(samples).to(device).split(size)
            left = len(order)
        yield order[len(order) - left]
        left, steps = left - 1, steps - 1


def train_round(
    flat: FlatPosterior,
    optimizer: torch.optim.Adam,
    data: Samples,
    phase: Phase,
    steps: int,
    shape: Shape,
    stored: Sequence[Samples] = (),
    mixed: int = 0,
) -> Tensor:
    """`steps` steps of Adam on NLL + KL / N; the mean NLL on the way.

    With `mixed`, as many images of one of the stored sets join each batch.
    """
    device = data.y.device
    total = torch.zeros((), device=device)
    flat.new_pool(steps, min(phase.batch, len(data.y)) + mixed)
    for index in batches(len(data.y), phase.batch, steps, device):
        parts = [data.take(index, shape, phase.augment)]
        if stored:
            old = stored[int(torch.randint(len(stored), ()))]
            index = torch.randint(len(old.y), (mixed,), device=device)
            old = old.take(index, shape, phase.distort)
            if old.head != data.head:
                parts.append(old)
            else:
                x, y = torch.cat([parts[0].x, old.x]), torch.cat([parts[0].y, old.y])
                parts = [old._replace(x=x, y=y)]
        total += flat.loss(parts, phase.kl_weight)
        optimizer.step()
    return total / steps


# -------------------------------------------------------------------------- Algorithm 1


@contextmanager
def seeded(*key: Any) -> Iterator[None]:
    """Randomness as a function of (seed, task, phase, round) and of nothing before it.

    That is what lets a stopped run go on bit for bit, and runs share a process.
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    with torch.random.fork_rng():
        torch.manual_seed(int.from_bytes(digest[:7], "little"))
        yield


@dataclass
class Stage:
    """What happened at one task; lists have an entry a hidden layer or a task."""

    task: str
    pruned: list[int] = field(default_factory=list)  # delta_k
    shared: list[int] = field(default_factory=list)  # alpha_share
    added: list[int] = field(default_factory=list)  # alpha
    hidden: list[int] = field(default_factory=list)  # sizes after growing
    utilisation: list[float] = field(default_factory=list)  # significant weights' share
    zero_shot: float = 0.0  # accuracy on the task before learning it
    train_nll: float = 0.0  # of the last epoch
    train_kl: float = 0.0
    accuracy: list[float] = field(default_factory=list)  # R[t]: on tasks 1..t
    nll: list[float] = field(default_factory=list)
    ece: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of one CPU core; of wall time with more threads or a GPU
    structure_seconds: float = 0.0  # of these, pruning and growing


class Learner:
    """Algorithm 1. Iterate over it: a `Stage` comes out after each task.

    `net` is the network as it stands, `coreset` the stored samples of each task,
    `stages` what has happened so far, `partial` a task half learned; `keep` is called
    after each task and epoch and may save them (rclcpb_runs.Checkpoint does).
    """

    def __init__(
        self,
        scenario: Scenario,
        config: Config,
        seed: int = 0,
        device: str | torch.device = "cpu",
        progress: bool = False,
        keep: Callable[[Learner], None] | None = None,
    ) -> None:
        self.scenario, self.config, self.seed = scenario, config, seed
        self.device, self.keep = torch.device(device), keep
        keep_freed_memory()
        self.image_shape = scenario.image_shape()
        alone = self.device.type == "cpu" and torch.get_num_threads() == 1
        # a core's own time says what a run costs, whatever else the machine does
        self.clock = time.process_time if alone else time.perf_counter
        self.stages: list[Stage] = []
        self.coreset: list[Samples] = []
        self.partial: dict[str, Any] = {}  # a task half learned
        self._check()
        with seeded(seed, "network"):
            self.net = self.new_network(config.hidden)
        unit = "task" if config.coreset_only else "epoch"  # the control has no epochs
        self.units = 1 if config.coreset_only else config.epochs  # a task
        self.bar = tqdm(
            total=self.units * len(scenario.tasks),
            disable=not progress,
            unit=unit,
            dynamic_ncols=True,
        )

    def _check(self) -> None:
        for t, task in enumerate(self.scenario.tasks):
            if self.config.coreset >= len(task.y_train):
                raise RclCpbError(
                    f"coreset={self.config.coreset}, but task {t + 1} ({task.name}) has"
                    f" only {len(task.y_train)} samples: choose a smaller coreset."
                )
        permuted = any(task.permutation is not None for task in self.scenario.tasks)
        if permuted and self.scenario.heads == "single" and self.config.distort != "none":
            raise RclCpbError(
                "one head's stored images are shuffled each in its own way and cannot"
                " be distorted together: set distort='none'."
            )

    def new_network(self, hidden: Sequence[int]) -> ProgressiveBNN:
        config = replace(self.config, hidden=tuple(hidden))
        return ProgressiveBNN(self.image_shape, config, self.scenario.trunk, self.device)

    def __iter__(self) -> Iterator[Stage]:
        done = self.units * len(self.stages)  # in an earlier process: not this speed
        self.bar.n = self.bar.last_print_n = self.bar.initial = done
        for t in range(len(self.stages), len(self.scenario.tasks)):
            yield self.learn_task(t)
        self.bar.close()

    def head(self, t: int) -> int:
        return t if self.scenario.heads == "multi" else 0

    def samples(self, t: int, split: str = "train") -> Samples:
        """A task's data as tensors on the device."""
        task = self.scenario.tasks[t]
        x = self.scenario.inputs(getattr(task, f"x_{split}"), task, self.device)
        y = self.scenario.targets(getattr(task, f"y_{split}"), t, self.device)
        shuffle = task.permutation
        pixels = None if shuffle is None else torch.from_numpy(shuffle).to(self.device)
        return Samples(x, y, self.head(t), pixels, task.mirror)

    def split_task(self, t: int) -> tuple[Samples, Samples]:
        """D_t without CT_t, and CT_t: what is stored is not in the training data."""
        data = self.samples(t)
        with seeded(self.seed, t, "coreset"):
            chosen = choose_coreset(data.x, data.y, self.config.coreset, self.config.coreset_choice)
        rest = torch.ones(len(data.y), dtype=torch.bool, device=self.device)
        rest[chosen] = False
        train = data._replace(x=data.x[rest], y=data.y[rest])
        return train, data._replace(x=rows(data.x, chosen), y=data.y[chosen])

    def learn_task(self, t: int) -> Stage:
        """One pass through the loop of Algorithm 1."""
        config, single = self.config, self.scenario.heads == "single"
        self.began = self.clock() - self.partial.pop("seconds", 0.0)
        stage = Stage(self.scenario.tasks[t].name)
        data, stored = self.split_task(t)
        self.coreset.append(stored)
        ready = self.clock()
        with seeded(self.seed, t, "structure"):
            if config.coreset_only:
                self.net = self.new_network(config.hidden)
            elif t > 0:
                self.net.posterior_becomes_prior()
                self.restructure(t, data, stage)
            stage.structure_seconds = self.clock() - ready
            kept = self.open_head(t)
        stage.hidden = self.net.sizes()
        stage.zero_shot = self.evaluate(t, self.net)[0]
        if not config.coreset_only:
            phase = Phase.training(config, len(data.y))
            stage.train_nll, stage.train_kl = self.fit(self.net, t, phase, data)
        if single:
            if kept is not None and config.restore_head:
                self.restore_rows(kept)
            if config.replay and config.coreset:
                (everything,) = self.stored(t + 1)
                self.replay(self.net, t, "replay", everything)
        stage.utilisation = utilisation(self.net, config)
        scores = []
        if t and config.coreset_only and not single:  # nothing touches the old fits
            before = self.stages[-1]
            scores = [*zip(before.accuracy, before.nll, before.ece, strict=True)]
        for j in range(len(scores), t + 1):
            scores.append(self.evaluate(j, self.net_for(j, t)))
        stage.accuracy, stage.nll, stage.ece = map(list, zip(*scores, strict=True))
        stage.seconds = self.clock() - self.began
        self.stages.append(stage)
        if config.coreset_only:
            self.bar.update()
        if self.keep:
            self.keep(self)
        return stage

    def restructure(self, t: int, data: Samples, stage: Stage) -> None:
        """Re-initialise what does nothing, add what cannot be borrowed (Eqs. 4-7)."""
        config, net = self.config, self.net
        if config.prune:
            stage.pruned = [int(delta) for delta in prune(net, config)]
        if not config.grow:
            return
        for k, means in enumerate(self.task_means(t, data)):
            shared = int(shared_neurons(class_distances(means), config.threshold("gamma", k)))
            task, first = self.scenario.tasks[t], self.scenario.tasks[0]
            required = required_neurons(config.hidden[k], task, first)
            pruned = pruned_neurons(stage.pruned[k], net.hidden[k].shape[1])
            stage.shared.append(shared)
            stage.added.append(neurons_to_add(required, shared, pruned))
        grow(net, stage.added)

    def task_means(self, t: int, data: Samples) -> list[Tensor]:
        """Mean activations for the classes that Eq. 5 compares at task t.

        Of a large task, some images drawn at random, and of a large coreset, which was
        drawn so, every so many: a mean needs no more.
        """
        x, y = data.x, data.y
        enough = MEANS_FROM_TRUNK if self.net.trunk else MEANS_FROM
        if len(y) > enough:
            chosen = torch.randperm(len(y), device=self.device)[:enough]
            x, y = rows(x, chosen), y.index_select(0, chosen)
        if self.config.distance_classes == "seen" and self.scenario.heads == "single":
            old = self.coreset[:t]
            every = max(1, math.ceil(sum(len(s.y) for s in old) / MEANS_FROM_STORED))
            x = torch.cat([x, *(s.x[::every] for s in old)])
            y = torch.cat([y, *(s.y[::every] for s in old)])
        labels, index = y.unique(return_inverse=True)
        return class_means(self.net, x, index, len(labels))

    def open_head(self, t: int) -> BayesLinear | None:
        """A head for task t's classes; a single head's old output layer is returned."""
        net, columns = self.net, len(self.scenario.columns(t))
        if self.scenario.heads == "multi":
            while len(net.heads) <= t:  # a fresh control network lacks the older ones
                net.add_head(len(self.scenario.columns(len(net.heads))))
            return None
        if not net.heads:
            net.add_head(columns)
            return None
        old = net.heads[0]
        if columns == old.shape[0]:
            return None
        kept = copy.deepcopy(old)
        if self.config.reinit_head:
            net.heads[0] = BayesLinear(old.shape[1], columns, self.config, self.device)
        else:
            old.grow(0, columns - old.shape[0])
        return kept

    @torch.no_grad()
    def restore_rows(self, kept: BayesLinear) -> None:
        """Old classes' output weights as they were after the last task's replay."""
        rows, head = kept.shape[0], self.net.heads[0]
        for name in ("mu", "rho"):
            weight, bias = head.split(getattr(head, name))
            weight[:rows], bias[:rows] = kept.split(getattr(kept, name))

    def stored(self, tasks: int) -> list[Samples]:
        """CT of the first tasks: one set a head."""
        if self.scenario.heads == "multi":
            return self.coreset[:tasks]
        xs, ys, _, _, mirrors = zip(*self.coreset[:tasks], strict=True)
        return [Samples(torch.cat(xs), torch.cat(ys), mirror=all(mirrors))]

    def net_for(self, j: int, t: int) -> ProgressiveBNN:
        """The network that answers for task j: in multi-head, a copy fitted on CT_j."""
        config = self.config
        newest = j == t and not (config.replay_newest or config.coreset_only)
        one = self.scenario.heads == "single"
        if one or newest or not (config.replay and config.coreset):
            return self.net
        net = copy.deepcopy(self.net)
        self.replay(net, t, f"fit {j}", self.coreset[j])
        return net

    def replay(self, net: ProgressiveBNN, t: int, name: str, data: Samples) -> None:
        """Fit stored samples from the posterior the network has, which is the prior."""
        config = self.config
        if not config.coreset_only:  # a fresh network's prior is task 1's
            net.posterior_becomes_prior()
        phase = Phase.replaying(config, len(data.y), name)
        if net.trunk and config.replay_views:
            with seeded(self.seed, t, name, "views"), torch.no_grad():
                every = torch.arange(len(data.y), device=self.device)
                views = [
                    data.take(every, self.image_shape, config.distort)
                    for _ in range(config.replay_views)
                ]
                x = [
                    net.trunk_features(view.x, lambda i, layer, x: layer(x, False))
                    for view in views
                ]
            data = data._replace(x=torch.cat(x), y=data.y.repeat(len(x)))
            phase = phase._replace(augment="none")
        self.fit(net, t, phase, data)

    def fit(self, net: ProgressiveBNN, t: int, phase: Phase, data: Samples) -> tuple[float, float]:
        """Adam on Eq. 8, from the posterior the network has; the last NLL and KL."""
        mixed = self.config.replay_mix if phase.name == "train" and t else 0
        stored = self.stored(t) if mixed else []
        heads = dict.fromkeys([data.head, *(old.head for old in stored)])
        cached = len(net.trunk) > 0 and data.x.dim() == 2
        flat = FlatPosterior(net, list(heads), trunk=not cached)
        optimizer = flat.optimizer(phase.lr_mu, phase.lr_rho)
        first = self._resume(phase, flat, optimizer)
        nll, kl = self.partial.get("losses", (math.nan, math.nan))
        for r in range(first, len(phase.rounds)):
            left = 1 - r / len(phase.rounds) if self.config.decay else 1
            optimizer.param_groups[0]["lr"] = left * phase.lr_mu
            optimizer.param_groups[1]["lr"] = left * phase.lr_rho
            with seeded(self.seed, t, phase.name, r):
                nll = train_round(
                    flat, optimizer, data, phase, phase.rounds[r], self.image_shape, stored, mixed
                ).item()
            told = phase.name == "train" or r == len(phase.rounds) - 1
            kl = flat.kl().item() if told else 0.0  # costs as much as a step
            if not math.isfinite(nll + kl):
                unit = "epoch" if phase.name == "train" else "round"
                raise RclCpbError(
                    f"task {t + 1}, {phase.name}, {unit} {r + 1}: the loss is not"
                    f" finite (NLL {nll:.3g}, KL {kl:.3g}): lower lr_mu and lr_rho, or"
                    " rho_init."
                )
            if phase.name == "train":
                self._progress(t, nll, kl)
                self._keep_partial(r + 1, (nll, kl), flat, optimizer)
        self.partial = {}
        return nll, kl

    def _progress(self, t: int, nll: float, kl: float) -> None:
        done = self.stages[-1].accuracy if self.stages else []
        known = f"{100 * np.mean(done):.1f}%" if done else "-"
        self.bar.set_description(f"task {t + 1}/{len(self.scenario.tasks)}", refresh=False)
        self.bar.set_postfix_str(
            f"nll {nll:.3f}, kl {kl:.0f}, accuracy {known}, sizes {self.net.sizes()}",
            refresh=False,
        )
        self.bar.update()

    def _keep_partial(
        self,
        done: int,
        losses: tuple[float, float],
        flat: FlatPosterior,
        optimizer: torch.optim.Adam,
    ) -> None:
        """Offer a half-learned task to `keep`, which decides whether to save it."""
        if self.keep is None:
            return
        moments = {}
        for name, parameter in (("mu", flat.mu), ("rho", flat.rho)):
            moments[name] = parameter.detach()
            for key, value in optimizer.state[parameter].items():
                moments[f"{name}.{key}"] = value
        self.partial = {
            "rounds": done,
            "losses": losses,
            "tensors": moments,
            "seconds": self.clock() - self.began,
        }
        self.keep(self)

    def _resume(self, phase: Phase, flat: FlatPosterior, optimizer: torch.optim.Adam) -> int:
        """Put a half-learned task's posterior and moments back; the rounds it had."""
        if phase.name != "train" or "rounds" not in self.partial:
            return 0
        tensors, state = self.partial["tensors"], optimizer.state_dict()
        for i, name in enumerate(("mu", "rho")):
            getattr(flat, name).data.copy_(tensors[name])
            state["state"][i] = {
                key.split(".")[1]: value
                for key, value in tensors.items()
                if key.startswith(f"{name}.")
            }
        optimizer.load_state_dict(state)  # which moves the moments to the device
        self.bar.update(self.partial["rounds"])
        return int(self.partial["rounds"])

    def evaluate(self, j: int, net: ProgressiveBNN) -> tuple[float, float, float]:
        """Accuracy, NLL and calibration error on task j's test data."""
        data, config = self.samples(j, "test"), self.config
        mirror = config.test_mirror and data.mirror and self.scenario.trunk
        with seeded(self.seed, len(self.stages), "evaluate", j):
            p = predict(net, data.x, data.head, config.test_samples, mirror)[0]
        if not p.isfinite().all():
            raise RclCpbError(
                f"task {j + 1}, evaluation: a prediction is not finite: lower lr_mu and"
                " lr_rho, or rho_init, or scale the images."
            )
        return score(p, data.y)


# ----------------------------------------------------------------------- metrics: Eq. 9


def score(probabilities: Tensor, y: Tensor, bins: int = 15) -> tuple[float, float, float]:
    """Accuracy, negative log-likelihood and expected calibration error."""
    confidence, answer = probabilities.max(1)
    right = (answer == y).float()
    nll = -probabilities.gather(1, y[:, None]).clamp_min(1e-12).log().mean()
    place = (confidence * bins).long().clamp(0, bins - 1)  # 0 for a NaN
    gap = torch.zeros(bins, device=y.device).index_add_(0, place, right - confidence)
    return right.mean().item(), nll.item(), (gap.abs().sum() / len(y)).item()


def average_accuracy(accuracy: Sequence[Sequence[float]]) -> float:
    """Eq. 9: the mean over tasks after the last one."""
    return float(np.mean(accuracy[-1]))


def forgetting(accuracy: Sequence[Sequence[float]]) -> float:
    """How far each old task fell from its best, on average."""
    last = len(accuracy) - 1
    falls = [max(accuracy[i][j] for i in range(j, last)) - accuracy[last][j] for j in range(last)]
    return float(np.mean(falls)) if falls else 0.0


def backward_transfer(accuracy: Sequence[Sequence[float]]) -> float:
    """BWT: what the tasks after it did to each task, on average."""
    last = len(accuracy) - 1
    moves = [accuracy[last][j] - accuracy[j][j] for j in range(last)]
    return float(np.mean(moves)) if moves else 0.0


def forward_transfer(zero_shot: Sequence[float], chance: Sequence[float]) -> float:
    """FWT: accuracy on a task just before it is learned, above chance."""
    gains = [z - c for z, c in zip(zero_shot[1:], chance[1:], strict=True)]
    return float(np.mean(gains)) if gains else 0.0


# ------------------------------------------------------------------------------ records


@dataclass
class Record:
    """A finished run, as JSON keeps it: what was run, and what came out a task."""

    scenario: str
    method: str
    seed: int
    config: dict[str, Any]
    tasks: list[str]
    accuracy: list[list[float]]  # R[i][j]: on task j after task i, fractions of 1
    nll: list[list[float]]
    ece: list[list[float]]
    zero_shot: list[float]  # on each task just before learning it
    chance: list[float]
    hidden: list[list[int]]  # sizes after each task
    pruned: list[list[int]]
    shared: list[list[int]]
    added: list[list[int]]
    utilisation: list[list[float]]
    train_nll: list[float]
    train_kl: list[float]
    seconds: list[float]
    structure_seconds: list[float]
    coreset_total: int
    parameters: int
    peak_mib: int  # of the process that ran it
    device: str
    threads: int
    versions: dict[str, str]
    data_sha256: str
    core_sha256: str
    started: str


def learn(
    scenario: Scenario,
    config: Config,
    seed: int = 0,
    method: str = "rcl-cpb",
    device: str = "cpu",
    progress: bool = False,
    learner: Learner | None = None,
) -> Record:
    """Run Algorithm 1 to its end (or a given learner, half way, to its) and report."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    learner = learner or Learner(scenario, config, seed, device, progress)
    for _ in learner:
        pass
    per_task = {
        f.name: [getattr(stage, f.name) for stage in learner.stages]
        for f in dataclasses.fields(Stage)
        if f.name != "task"
    }
    columns = [len(scenario.columns(t)) for t in range(len(scenario.tasks))]
    versions = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "rclcpb": __version__,
    }
    return Record(
        scenario=scenario.name,
        method=method,
        seed=seed,
        config=asdict(config),
        tasks=[task.name for task in scenario.tasks],
        **per_task,
        chance=[1 / n for n in columns],
        coreset_total=sum(len(s.y) for s in learner.coreset),
        parameters=sum(p.numel() for p in learner.net.parameters()),
        peak_mib=_peak_mib(),
        device=str(learner.device),
        threads=torch.get_num_threads(),
        versions=versions,
        data_sha256=scenario.sha256(),
        core_sha256=CORE_SHA256,
        started=started,
    )


def _peak_mib() -> int:
    """The largest memory this process has had; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


if __name__ == "__main__":
    from rclcpb_runs import main

    main()
