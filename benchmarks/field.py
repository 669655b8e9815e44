"""The other methods' settings: a search of one length for all, on validation data.

    python benchmarks/field.py ta-smnist
    python benchmarks/field.py mh-cifar100 --methods ewc der++

A method's axes (below) are tried one after another, each value with the best of all else
that was tried before, until the scenario's budget of runs is used up; a method with less to
tune ends sooner. Rows go to book/results/regime/SCENARIO.jsonl, as those of regime.py; what is
there is not run again. The settings found belong into rclcpb/methods/settings.py.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from regime import HERE, Search, rows_of, same_run

from rclcpb.methods.network import PlainConfig
from rclcpb.methods.plain import PlainMethod
from rclcpb.methods.settings import BASES
from rclcpb.presets import METHODS, make_scenario
from rclcpb.scenarios import Scenario


class Plan(NamedTuple):
    """How a scenario is searched."""

    budget: int  # runs a method, at the most
    start: dict[str, Any]  # settings of every method's first run; the rest are PlainConfig's
    tasks: int = 0  # only the first so many; 0 is all


PLANS = {
    "mh-smnist": Plan(6, {"epochs": 3}),
    "ta-smnist": Plan(6, {"epochs": 2}),
    "pmnist": Plan(8, {"epochs": 1, "lr": 2e-3}, 3),  # one pass for all: no axis
    "pmnist-shared": Plan(5, {"epochs": 1, "lr": 2e-3}, 3),
    "mh-cifar100": Plan(6, {"epochs": 10, "batch_size": 32}, 5),
    "ta-cifar100": Plan(6, {"epochs": 10, "batch_size": 32}, 5),
    "mnist-svhn-cifar10": Plan(4, {"epochs": 4, "batch_size": 32}),
}


def times(*factors: float) -> Callable[[float], list[float]]:
    """Values around the best so far."""
    return lambda best: [type(best)(f"{best * factor:.3g}") for factor in factors]


Axis = tuple[str, Any]  # a field, and its values or what makes them of the best so far
STRENGTH: list[Axis] = [("strength", [1e4, 1.0]), ("strength", times(10, 0.1))]
RATE: Axis = ("lr", times(3, 1 / 3))
EPOCHS: Axis = ("epochs", times(2, 4))
LONGER: list[Axis] = [("epochs", times(2)), ("batch_size", times(0.5))]
OWN: Axis = ("mask", ["own"])  # single-head scenarios of new classes only
FIT: Axis = ("final_steps", [200])
AXES: dict[str, list[Axis]] = {
    "finetune": [OWN, RATE, EPOCHS],
    "joint": [],  # the ceiling, and no rival: as it starts
    "er": [OWN, FIT, ("beta", times(3, 1 / 3)), RATE, *LONGER],
    "der++": [OWN, FIT, ("alpha", [0.1, 2.0]), RATE, ("beta", [0.5]), *LONGER],
    "ewc": [OWN, *STRENGTH, RATE, *LONGER],
    "ewc-online": [OWN, *STRENGTH, ("keep", [1.0]), RATE, *LONGER],
    "si": [OWN, *STRENGTH, ("damping", times(10)), RATE, *LONGER],
    "lp": [OWN, *STRENGTH, RATE, *LONGER],
    "rwalk": [OWN, FIT, ("strength", [1.0, 1e4]), ("strength", times(10, 0.1)), RATE, *LONGER],
    "gem": [OWN, FIT, ("margin", [0.0, 1.0]), RATE, *LONGER],
    "icarl": [FIT, ("distillation", times(3, 1 / 3)), RATE, EPOCHS, ("batch_size", times(0.5))],
    "pnn": [RATE, *LONGER],
}


def axes(scenario: Scenario, method: str) -> Iterator[Axis]:
    """Those that say something on a scenario."""
    one_head = scenario.heads == "single"
    permuted = scenario.tasks[0].permutation is not None  # every task has all the classes
    for field, values in AXES[method]:
        if field == "mask" and (not one_head or permuted):
            continue
        if field == "final_steps" and not one_head:
            continue
        if field == "epochs" and permuted:  # one pass
            continue
        yield field, values


def applies(scenario: Scenario, method: str) -> bool:
    """Is the method made for such a scenario?"""
    if not issubclass(METHODS[method].learner, PlainMethod):
        return False
    one_head = scenario.heads == "single"
    if method == "icarl":  # exemplars of a class whose images change from task to task
        return not (one_head and scenario.tasks[0].permutation is not None)
    return method != "pnn" or not one_head


class Field:
    """The search of one scenario's methods, with its rows on disk."""

    def __init__(self, scenario: str, out: Path, data_dir: str | None = None) -> None:
        self.name, self.plan, self.data_dir = scenario, PLANS[scenario], data_dir
        self.path = out / f"{scenario}.jsonl"
        self.scenario = make_scenario(scenario, 0, data_dir)
        base = BASES[scenario]
        sized = PlainConfig(hidden=base.hidden, memory=base.memory)
        self.start = replace(sized, **self.plan.start)

    def accuracy(self, search: Search, config: PlainConfig) -> float:
        """On validation data, of a new run or of one on record."""
        key = {"method": search.method, "seed": 0, "tasks": search.tasks}
        row = next((r for r in rows_of(self.path) if same_run(r, key, config)), None)
        if row is None:
            about, default = asdict(config), asdict(self.start)
            text = " ".join(f"{k}={v}" for k, v in about.items() if v != default[k])
            row = key | {"config": config.as_json(), "variant": text, **search.row(config, 0)}
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        text = row["variant"]
        print(f"{100 * row['accuracy']:6.2f} {row['seconds']:4.0f} s  {search.method} {text}")
        return float(row["accuracy"])

    def best(self, method: str) -> PlainConfig:
        """The best settings of a method that its budget finds."""
        search = Search(self.name, method, self.plan.tasks, self.data_dir)
        best, tried = self.start, {self.start: self.accuracy(search, self.start)}
        for field, values in axes(self.scenario, method):
            value = getattr(best, field)
            for other in values(value) if callable(values) else values:
                config = replace(best, **{field: other})
                if config not in tried and len(tried) < self.plan.budget:
                    tried[config] = self.accuracy(search, config)
            best = max(tried, key=lambda config: tried[config])
        return best


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cli.add_argument("scenario", choices=PLANS)
    cli.add_argument("--methods", nargs="+", choices=AXES, default=list(AXES))
    cli.add_argument("--data-dir", default=None)
    cli.add_argument("--out", type=Path, default=HERE / "book/results/regime")
    args = cli.parse_args()
    torch.set_num_threads(1)
    field = Field(args.scenario, args.out, args.data_dir)
    for method in args.methods:
        if applies(field.scenario, method):
            config, base = field.best(method), asdict(BASES[args.scenario])
            found = {k: v for k, v in asdict(config).items() if v != base[k]}
            print(f"{args.scenario} {method}: {found}", flush=True)


if __name__ == "__main__":
    main()
