"""How much of a network can go, and who says which part: the pruning curve.

    python benchmarks/pruning.py pmnist-shared --tasks 5
    python benchmarks/pruning.py mh-smnist

VCL of a fixed size with nothing stored learns the scenario: with Adam, with natural-gradient
steps, and with these and the prior_strength of their preset, where that is not 1. After the
first task and after the last, a share of all hidden weights is set to zero, and the rest
answers by its means: the accuracy on what was learned. Which weights go first is said by SNR,
by |mu| alone, by SNR with the widths shuffled within each layer, or by lot. One line of JSON
a run is appended to book/results/pruning/SCENARIO.jsonl; what is there already is not run
again.
"""

import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from regime import LastRow, parser, rows_of, same_run
from scipy.stats import spearmanr
from torch import Tensor

import rclcpb_core as core
from rclcpb.presets import make_scenario, preset
from rclcpb.scenarios import Scenario

SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
ORDERS = ("snr", "size", "shuffled", "random")
OPTIMISERS = ("adam", "natural", "natural-strong")
SIZE = (100, 100)


def settings(scenario: str, optimiser: str) -> core.Config:
    """VCL without stored images; but for the optimiser and its rates, both have the same."""
    natural, adam = (preset(scenario, method) for method in ("vcl-memoryless", "vcl"))
    size = {"hidden": SIZE, "new_into_old": "random", "gamma": adam.gamma}  # nothing grows
    strong: core.Config = replace(natural, **size)
    if optimiser == "natural-strong":
        return strong
    bayes = replace(strong, prior_strength=1.0)
    if optimiser == "natural":
        return bayes
    return replace(bayes, optimiser="adam", lr_mu=adam.lr_mu, lr_rho=adam.lr_rho)


def parts(layer: core.BayesLayer) -> tuple[Tensor, Tensor]:
    """|mu| and sigma of a layer's weights."""
    return layer.weights(layer.mu).detach().abs(), layer.weights(layer.rho / 2).detach().exp()


def score(layer: core.BayesLayer, order: str) -> Tensor:
    """What goes first is lowest; the matrix of a layer."""
    size, width = parts(layer)
    if order == "random":
        return torch.rand_like(size)
    if order == "shuffled":
        width = width.flatten()[torch.randperm(width.numel())].view_as(width)
    return size if order == "size" else size / width


def without(net: core.ProgressiveBNN, order: str, share: float) -> core.ProgressiveBNN:
    """A copy whose lowest weights have a mean of zero, over all hidden layers together."""
    thin = copy.deepcopy(net)
    scores = [score(layer, order) for layer in thin.hidden]
    ranks = torch.cat([one.flatten() for one in scores]).argsort().argsort()
    gone = (ranks < round(share * len(ranks))).split([one.numel() for one in scores])
    for layer, one in zip(thin.hidden, gone, strict=True):
        layer.weights(layer.mu.data).view(-1)[one] = 0
    return thin


@torch.no_grad()
def accuracy(net: core.ProgressiveBNN, tests: Sequence[core.Samples]) -> float:
    """Of the mean weights, averaged over tasks."""
    said = (net(test.x, test.head, core.by_means).argmax(1) for test in tests)
    right = [(a == test.y).float().mean() for a, test in zip(said, tests, strict=True)]
    return float(torch.stack(right).mean())


def measured(net: core.ProgressiveBNN, tests: Sequence[core.Samples]) -> dict[str, Any]:
    """The curves, and what the widths add to the order: of a network as it stands."""
    found: dict[str, Any] = {
        order: [accuracy(without(net, order, share), tests) for share in SHARES] for order in ORDERS
    }
    pairs = [[part.flatten().numpy() for part in parts(layer)] for layer in net.hidden]
    found["alike"] = [float(spearmanr(size, size / width).statistic) for size, width in pairs]
    found["spread"] = [
        float(np.quantile(width, 0.99) / np.quantile(width, 0.01)) for _, width in pairs
    ]
    return found


def curves(scenario: Scenario, config: core.Config, seed: int) -> dict[str, Any]:
    """A run's curves after its first task and after its last."""
    run, row, tests = LastRow(core.Learner(scenario, config, seed)), {}, []
    for t, _ in enumerate(run):
        tests.append(core.samples(scenario, t, "test"))
        for stage, at in (("first", 0), ("last", len(scenario.tasks) - 1)):
            if t == at:
                with core.seeded(seed, t, "pruning curve"):
                    row[stage] = measured(run.method.net, tests)
    return row | {"started": run.started}


def line(row: dict[str, Any], stage: str, order: str) -> str:
    """A curve in words."""
    values = " ".join(f"{100 * value:.1f}" for value in row[stage][order])
    return f"{row['optimiser']} seed {row['seed']} {stage} {order}: {values}"


def main() -> None:
    args = parser(__doc__, "pruning", [0, 1, 2]).parse_args()
    configs = {optimiser: settings(args.scenario, optimiser) for optimiser in OPTIMISERS}
    if configs["natural-strong"] == configs["natural"]:
        del configs["natural-strong"]
    path = args.out / f"{args.scenario}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in args.seeds:
        for optimiser, config in configs.items():
            key = {"optimiser": optimiser, "seed": seed, "tasks": args.tasks}
            row = next((r for r in rows_of(path) if same_run(r, key, config)), None)
            if row is None:
                began = time.process_time()
                scenario = make_scenario(args.scenario, seed, args.data_dir)
                scenario = replace(scenario, tasks=scenario.tasks[: args.tasks or None])
                row = key | {"shares": SHARES, "config": config.as_json()}
                row |= curves(scenario, config, seed)
                row |= {"seconds": time.process_time() - began}
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            for stage in ("first", "last"):
                print(*(line(row, stage, order) for order in ORDERS), sep="\n", flush=True)


if __name__ == "__main__":
    main()
