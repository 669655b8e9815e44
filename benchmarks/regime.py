"""The search for a training regime, on validation data only.

    python benchmarks/regime.py ta-smnist "" "sampling=local" "epochs=3" --seeds 0 1 2

Each quoted string is one variant: settings that differ from the preset. Every sixth training
image is held out as the test set; the real test set is never read. One line of JSON a run is
appended to book/results/regime/SCENARIO.jsonl; what is there already is not run again.
`--method vcl` searches for VCL with the same effort, and any other method for its own settings.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from rclcpb.files import RclCpbError  # noqa: E402
from rclcpb.jobs import Job  # noqa: E402
from rclcpb.method import Method  # noqa: E402
from rclcpb.presets import METHODS, NAMES, make_scenario, preset  # noqa: E402
from rclcpb.runner import Run, make  # noqa: E402
from rclcpb.scenarios import holdout  # noqa: E402
from rclcpb.settings import Settings  # noqa: E402
from rclcpb.sweep import sweep_jobs  # noqa: E402
from rclcpb_core import Learner  # noqa: E402

# What RCL-CPB with a head a task needs at evaluation only: such variants share one training.
FITS = (
    *("replay", "replay_newest", "replay_steps", "replay_epochs", "replay_batch"),
    *("replay_lr", "replay_kl", "test_samples", "test_mirror"),
)


class LastRow(Run):
    """A run of which only the accuracies after the last task count: no others are made."""

    seconds = 0.0

    def evaluate(self, j: int) -> tuple[float, float, float]:
        # of a method whose answers may stand, those of earlier tasks are part of the last row
        stand = type(self.method).unchanged is not Method.unchanged
        early = len(self.stages) < len(self.scenario.tasks) - 1
        return (0.0, 0.0, 0.0) if early and not stand else super().evaluate(j)

    def learn(self) -> list[float]:
        """Learn all tasks; the accuracies."""
        return [stage.accuracy or [] for stage in self][-1]

    def serves(self, config: Settings) -> bool:
        """Are these settings but for the fits at evaluation those it was trained with?"""
        if type(self.method) is not Learner or self.scenario.heads == "single":
            return False
        fits = {name: getattr(config, name) for name in FITS}
        return replace(self.method.config, **fits) == config

    def again(self, config: Settings) -> list[float]:
        """The accuracies once more, with other settings of the fits before them."""
        self.method.config, last = config, len(self.scenario.tasks) - 1
        del self.stages[last:]  # as they were when the last row was made
        return [self.evaluate(j)[0] for j in range(last + 1)]


class Search:
    """Runs of one method on one scenario; of each seed, the last one is at hand."""

    def __init__(self, scenario: str, method: str, tasks: int = 0, data_dir: Any = None) -> None:
        self.scenario, self.method, self.tasks = scenario, method, tasks
        self.data_dir = data_dir
        self.trained: dict[int, LastRow] = {}

    def row(self, config: Settings, seed: int) -> dict[str, Any]:
        """Accuracies on validation data after the last task, sizes and seconds."""
        began, run = time.time(), self.trained.get(seed)
        if run is not None and run.serves(config):
            last = run.again(config)
        else:
            self.trained.pop(seed, None)  # its memory is needed
            run = self.new_run(config, seed)
            last = run.learn()
            self.trained[seed], run.seconds, began = run, time.time() - began, time.time()
        return {
            "accuracy": float(np.mean(last)),
            "last": last,
            "hidden": run.method.sizes(),
            "seconds": run.seconds + time.time() - began,
        }

    def new_run(self, config: Settings, seed: int) -> LastRow:
        scenario = holdout(make_scenario(self.scenario, seed, self.data_dir))
        scenario = replace(scenario, tasks=scenario.tasks[: self.tasks or None])
        return LastRow(make(self.method, scenario, config, seed))


def variant(text: str, config: Settings) -> Settings:
    """The preset with `field=value` pairs put in, as on the command line; 3,4 is a tuple."""
    pairs = [pair.partition("=") for pair in text.split()]
    base = Job("", "", 0, config, Path())
    (job,) = sweep_jobs(base, {name: [value] for name, _, value in pairs}, [0])
    return job.config


def rows_of(path: Path) -> list[dict[str, Any]]:
    """What was searched before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def same_run(row: dict[str, Any], key: dict[str, Any], config: Settings) -> bool:
    """Is that row this run? A setting younger than the row had its default."""
    if any(row[name] != value for name, value in key.items()):
        return False
    try:
        return type(config).from_json(row["config"]) == config
    except RclCpbError:  # of settings that are gone
        return False


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Seeds of a variant: accuracy, sizes, seconds."""
    mean, spread = (100 * of([row["accuracy"] for row in rows]) for of in (np.mean, np.std))
    size = np.mean([row["hidden"] for row in rows], axis=0).round().astype(int).tolist()
    seconds = np.mean([row["seconds"] for row in rows])
    return f"{mean:5.2f} ± {spread:4.2f} {size} {sum(size)} {seconds:4.0f} s"


def parser(about: str | None, folder: str, seeds: list[int]) -> argparse.ArgumentParser:
    """What every search of a scenario takes."""
    cli = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    cli.add_argument("scenario", choices=NAMES)
    cli.add_argument("--seeds", type=int, nargs="+", default=seeds)
    cli.add_argument("--tasks", type=int, default=0, help="only the first so many tasks")
    cli.add_argument("--data-dir", default=None)
    cli.add_argument("--out", type=Path, default=HERE / "book/results" / folder)
    return cli


def arguments() -> argparse.Namespace:
    cli = parser(__doc__, "regime", [0])
    cli.add_argument("variants", nargs="+")
    cli.add_argument("--method", default="rcl-cpb", choices=METHODS)
    return cli.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    path = args.out / f"{args.scenario}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = rows_of(path)
    search = Search(args.scenario, args.method, args.tasks, args.data_dir)
    for text in args.variants:
        config = variant(text, preset(args.scenario, args.method))
        rows = []
        for seed in args.seeds:
            key = {"method": args.method, "seed": seed, "tasks": args.tasks}
            row = next((row for row in done if same_run(row, key, config)), None)
            if row is None:
                row = key | {"config": config.as_json(), "variant": text}
                row |= search.row(config, seed)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                done.append(row)
            rows.append(row)
        last = np.round(100 * np.mean([row["last"] for row in rows], axis=0), 1).tolist()
        print(f"{summary(rows)}  {args.method} {text}  {last}", flush=True)


if __name__ == "__main__":
    main()
