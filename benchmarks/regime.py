"""The search for a training regime, on validation data only.

    python benchmarks/regime.py ta-smnist "" "sampling=local" "epochs=3" --seeds 0 1 2

Each quoted string is one variant: Config fields that differ from the preset. Every
sixth training image is held out as the test set; the real test set is never read.
One line of JSON a run is appended to book/results/regime/SCENARIO.jsonl; what is there
already is not run again. `--method vcl` searches for VCL with the same effort.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import rclcpb_core as core  # noqa: E402


class LastRow(core.Learner):
    """A search reads the accuracies after the last task only: no fits before it."""

    def net_for(self, j: int, t: int) -> core.ProgressiveBNN:
        last = t == len(self.scenario.tasks) - 1
        # the control's scores stand from the task they were made at
        return super().net_for(j, t) if last or self.config.coreset_only else self.net

    def again(self, config: core.Config) -> list[float]:
        """The last row once more, with other settings of the fits before it."""
        self.config, last = config, len(self.scenario.tasks) - 1
        del self.stages[last:]  # as they were when the last row was made
        return [self.evaluate(j, self.net_for(j, last))[0] for j in range(last + 1)]


# What a head a task needs at evaluation only: such variants share one training.
FITS = (
    "replay",
    "replay_newest",
    "replay_steps",
    "replay_epochs",
    "replay_batch",
    "replay_lr",
    "replay_kl",
    "replay_views",
    "test_samples",
    "test_mirror",
)
_trained: dict[int, tuple[str, LastRow, list[int], float]] = {}  # the last, by seed


def last_row(
    name: str, config: core.Config, seed: int, method: str, tasks: int, data_dir: str | None
) -> dict[str, Any]:
    """Accuracies on validation data after the last task, sizes and seconds."""
    began = time.time()
    scenario = core.holdout(core.make_scenario(name, seed, data_dir))
    if tasks:
        scenario = replace(scenario, tasks=scenario.tasks[:tasks])
    default = core.Config()
    same = replace(config, **{field: getattr(default, field) for field in FITS})
    key = repr((name, tasks, method, same))
    alone = scenario.heads == "single" or config.coreset_only  # shares no training
    if alone or _trained.get(seed, ("",))[0] != key:
        _trained.pop(seed, None)
        learner = LastRow(scenario, config, seed)
        record = core.learn(scenario, config, seed, method, learner=learner)
        last, hidden, spent = record.accuracy[-1], record.hidden[-1], 0.0
        _trained[seed] = key, learner, hidden, time.time() - began
    else:
        _, learner, hidden, spent = _trained[seed]
        last = learner.again(config)
    return {
        "accuracy": float(np.mean(last)),
        "last": last,
        "hidden": hidden,
        "seconds": spent + time.time() - began,
    }


def variant(text: str, config: core.Config) -> core.Config:
    """The preset with `field=value` pairs put in; 3,4 is a tuple."""
    changes: dict[str, Any] = {}
    for pair in text.split():
        name, value = pair.split("=")
        kind = type(getattr(config, name))
        if kind is tuple:
            number = int if name == "hidden" else float
            changes[name] = tuple(number(v) for v in value.split(","))
        else:
            changes[name] = value == "True" if kind is bool else kind(value)
    return replace(config, **changes)


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cli.add_argument("scenario", choices=core.SCENARIOS)
    cli.add_argument("variants", nargs="+")
    cli.add_argument("--method", default="rcl-cpb", choices=core.METHODS)
    cli.add_argument("--seeds", type=int, nargs="+", default=[0])
    cli.add_argument("--tasks", type=int, default=0, help="only the first so many tasks")
    cli.add_argument("--data-dir", default=None)
    cli.add_argument("--out", type=Path, default=HERE / "book/results/regime")
    args = cli.parse_args()
    torch.set_num_threads(1)
    path = args.out / f"{args.scenario}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    default = json.loads(json.dumps(asdict(core.Config())))
    for row in done:  # fields younger than the row have their defaults
        row["config"] = default | row["config"]
    for text in args.variants:
        config = variant(text, core.preset(args.scenario, args.method))
        results = []
        for seed in args.seeds:
            key = json.loads(
                json.dumps(
                    {
                        "method": args.method,
                        "seed": seed,
                        "tasks": args.tasks,
                        "config": asdict(config),
                    }
                )
            )
            row = next((d for d in done if key.items() <= d.items()), None)
            if row is None:
                row = (
                    key
                    | {"variant": text}
                    | last_row(args.scenario, config, seed, args.method, args.tasks, args.data_dir)
                )
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            results.append(row)
        mean = 100 * np.mean([r["accuracy"] for r in results])
        spread = 100 * np.std([r["accuracy"] for r in results])
        size = np.mean([r["hidden"] for r in results], axis=0).round().astype(int).tolist()
        last = np.mean([r["last"] for r in results], axis=0)
        seconds = np.mean([r["seconds"] for r in results])
        print(
            f"{mean:5.2f} ± {spread:4.2f} {size} {sum(size)} {seconds:4.0f} s "
            f" {args.method} {text}  {np.round(100 * last, 1).tolist()}",
            flush=True,
        )


if __name__ == "__main__":
    main()
