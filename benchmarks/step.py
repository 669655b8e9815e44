"""What one training step costs: plain layers, this core, and other libraries.

    python benchmarks/step.py            every library that is installed, some minutes
    python benchmarks/step.py --quick    plain and core only, under 45 seconds

A step is forward, KL, backward and fused Adam, or the core's natural gradient, on a batch
of 256. All methods take turns in one process, every turn on fresh random images (on
repeated ones the gradients die out), and the table has the median of each. With one
thread the clock is the process's CPU time, so that a busy machine disturbs little. The
core's step includes its share of the noise that an epoch draws ahead
(`FlatPosterior.new_round`, 47 steps an epoch: 12,000 images).
The last line is the core's worst ratio to plain layers: for the MLPs with
weights drawn and with local reparameterisation, for the convnet of the CIFAR
scenarios with weights drawn, and for the MLPs with natural-gradient steps. The line
before it is what a natural step costs in terms of the core's own step with Adam.

The other libraries: `pip install --no-deps -r requirements-bench.txt`.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import rclcpb_core as core  # noqa: E402
from rclcpb.fast import FlatPosterior  # noqa: E402
from rclcpb.method import Samples  # noqa: E402

BATCH, EPOCH, KL_WEIGHT, RATE, NATURAL_RATE = 256, 47, 1 / 12_000, 1e-3, 0.02
CORE = {  # a row of the table: its sampling, and whether its steps are natural
    "core weight": ("weight", False),
    "core local": ("local", False),
    "core natural weight": ("weight", True),
    "core natural local": ("local", True),
}
Step = Callable[[Tensor, Tensor], object]


class Case(NamedTuple):
    """A network to train: an MLP on digits or the convnet on colour images."""

    kind: str  # "mlp" or "conv"
    hidden: tuple[int, ...]
    rounds: int
    quick_rounds: int

    def shape(self) -> tuple[int, int, int]:
        return (1, 28, 28) if self.kind == "mlp" else (3, 32, 32)

    def classes(self) -> int:
        return 10 if self.kind == "mlp" else 5

    def batch(self) -> tuple[Tensor, Tensor]:
        channels, height, width = self.shape()
        y = torch.randint(self.classes(), (BATCH,))
        x = torch.rand(BATCH, height, width, channels)
        if self.kind == "mlp":
            return x.flatten(1), y
        return x.permute(0, 3, 1, 2), y  # channels last, as the scenarios give them


CASES = (
    Case("mlp", (100, 100), 400, 100),
    Case("mlp", (160, 128), 400, 100),
    Case("mlp", (256, 256), 300, 80),
    Case("conv", (128, 128), 60, 10),
    Case("conv", (733, 789), 40, 8),
)


class Network(nn.Sequential):
    """Layers in a row; bayesian-torch's also return their KL, which is summed."""

    def forward(self, x: Tensor) -> Tensor:
        self.kl: Any = 0.0
        for layer in self:
            x = layer(x)
            if isinstance(x, tuple):
                x, kl = x
                self.kl = self.kl + kl
        return x


def network(case: Case, linear: Any, conv: Any) -> Network:
    """The core's network of this case, out of anybody's layers."""
    channels, height, width = case.shape()
    layers: list[nn.Module] = []
    if case.kind == "conv":
        for out in core.TRUNK:
            # pooling first is the same and faster; the core does it, so all may
            layers += [conv(channels, out), nn.MaxPool2d(2), nn.ReLU()]
            channels, height, width = out, height // 2, width // 2
    sizes = [channels * height * width, *case.hidden]
    layers.append(nn.Flatten())
    for a, b in pairwise(sizes):
        layers += [linear(a, b), nn.ReLU()]
    return Network(*layers, linear(sizes[-1], case.classes()))


def autograd_step(net: Network, kl: Callable[[Network], Any] | None) -> Step:
    """A step as one writes it with torch and the library at hand."""
    optimizer = torch.optim.Adam(net.parameters(), RATE, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        if kl is not None:
            loss = loss + KL_WEIGHT * kl(net)
        loss.backward()
        optimizer.step()

    return step


def core_step(case: Case, sampling: Any, natural: bool) -> tuple[Step, Callable[[], object]]:
    """The core's step, and the drawing of an epoch's noise."""
    settings = core.Config(sampling=sampling).layer_settings()
    net = core.ProgressiveBNN(case.shape(), case.hidden, settings, case.kind == "conv")
    net.add_head(case.classes())
    flat = FlatPosterior(net, [0])
    optimizer = core.adam(flat, RATE, RATE)
    if natural:
        optimizer = core.Natural(flat, NATURAL_RATE, NATURAL_RATE, KL_WEIGHT)
    flat.new_round(1000, BATCH)  # places for more steps than any case takes

    def step(x: Tensor, y: Tensor) -> None:
        flat.gradients([Samples(x, y)], KL_WEIGHT)
        optimizer.step()

    return step, lambda: flat.new_round(EPOCH, BATCH)


def peers() -> dict[str, tuple[Any, Any, Callable[[Network], Any]]]:
    """Other libraries' linear layers, convolutions and KL."""
    bt, torchbnn, blitz, losses = map(
        importlib.import_module,
        ("bayesian_torch.layers", "torchbnn", "blitz.modules", "blitz.losses"),
    )
    bnn_kl = torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    return {
        "torchbnn": (
            lambda a, b: torchbnn.BayesLinear(0, 1, a, b),
            lambda a, b: torchbnn.BayesConv2d(0, 1, a, b, 3, padding=1),
            bnn_kl,
        ),
        "bayesian-torch": (
            bt.LinearReparameterization,
            lambda a, b: bt.Conv2dReparameterization(a, b, 3, padding=1),
            lambda net: net.kl,
        ),
        "bayesian-torch flipout": (
            bt.LinearFlipout,
            lambda a, b: bt.Conv2dFlipout(a, b, 3, padding=1),
            lambda net: net.kl,
        ),
        "BLiTZ": (
            blitz.BayesianLinear,
            lambda a, b: blitz.BayesianConv2d(a, b, (3, 3), padding=1),
            losses.kl_divergence_from_nn,
        ),
    }


def measure(
    case: Case, others: dict[str, Any], quick: bool, clock: Callable[[], float]
) -> dict[str, float]:
    """Milliseconds a step of each method: the median over the rounds."""
    torch.manual_seed(0)
    plain = network(case, nn.Linear, lambda a, b: nn.Conv2d(a, b, 3, padding=1))
    plain.to(memory_format=torch.channels_last)  # the fastest; torchbnn cannot have it
    steps = {"plain": autograd_step(plain, None)}
    pools = {}
    for name, (sampling, natural) in CORE.items():
        steps[name], pools[name] = core_step(case, sampling, natural)
    for name, (linear, conv, kl) in others.items():
        steps[name] = autograd_step(network(case, linear, conv), kl)

    def timed(call: Callable[..., object], *args: Tensor) -> float:
        began = clock()
        call(*args)
        return 1e3 * (clock() - began)

    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    warm = 5
    for i in range(warm + (case.quick_rounds if quick else case.rounds)):
        x, y = case.batch()
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(timed(steps[name], x, y))
    result = {name: float(np.median(values[warm:])) for name, values in times.items()}
    for name, pool in pools.items():
        result[name] += float(np.median([timed(pool) for _ in range(5)])) / EPOCH
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds and ratios to plain layers: a method a line, a case a column."""
    heads = [f"{row['kind']} {row['hidden']}" for row in rows]
    lines = [f"{'':24}" + "".join(f"{head:>20}" for head in heads)]
    for name in rows[0]["milliseconds"]:
        cells = (f"{r['milliseconds'][name]:.2f} ms {r['ratio'][name]:5.2f}" for r in rows)
        lines.append(f"{name:24}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def worst_ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The core's largest ratio to plain layers, of each kind that has a target."""
    kinds = {
        "mlp-weight": ("mlp", "weight"),
        "mlp-local": ("mlp", "local"),
        "conv": ("conv", "weight"),
        "natural-weight": ("mlp", "natural weight"),
        "natural-local": ("mlp", "natural local"),
    }
    return {
        label: max(r["ratio"][f"core {how}"] for r in rows if r["kind"] == kind)
        for label, (kind, how) in kinds.items()
    }


def against_adam(rows: list[dict[str, Any]]) -> dict[str, float]:
    """A natural step's largest ratio to the core's own with Adam."""
    cases = {"weight": ("mlp", "weight"), "local": ("mlp", "local"), "conv": ("conv", "weight")}
    return {
        label: max(
            row["ratio"][f"core natural {how}"] / row["ratio"][f"core {how}"]
            for row in rows
            if row["kind"] == kind
        )
        for label, (kind, how) in cases.items()
    }


def installed_peers() -> dict[str, Any]:
    try:
        return peers()
    except ImportError as error:
        print(f"No peers in this table ({error}): see requirements-bench.txt.")
        return {}


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cli.add_argument("--quick", action="store_true", help="few rounds, no peers")
    cli.add_argument("--threads", type=int, default=1)
    cli.add_argument("--out", type=Path, default=HERE / "runs" / "step.json")
    args = cli.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.threads == 1 else time.perf_counter
    others = {} if args.quick else installed_peers()
    rows: list[dict[str, Any]] = []
    for case in CASES:
        times = measure(case, others, args.quick, clock)
        ratio = {name: value / times["plain"] for name, value in times.items()}
        rows.append(
            {"kind": case.kind, "hidden": list(case.hidden), "milliseconds": times, "ratio": ratio}
        )
    worst, natural = worst_ratios(rows), against_adam(rows)
    load = getattr(os, "getloadavg", lambda: (None,))()[0]  # Windows has none
    about = {
        "batch": BATCH,
        "threads": args.threads,
        "quick": args.quick,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": load,
        "worst": worst,
        "natural/adam": natural,
        "cases": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(about, indent=1) + "\n")
    print(table(rows))
    print("natural/adam: " + " ".join(f"{k} {v:.2f}" for k, v in natural.items()))
    print("core/plain: " + " ".join(f"{k} {v:.2f}" for k, v in worst.items()))


if __name__ == "__main__":
    main()
