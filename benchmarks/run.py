"""What a whole run costs, how that grows, and what a prediction costs.

    python benchmarks/run.py        ta-smnist-5k; a few minutes

Measured: one run of RCL-CPB with its preset (seconds a task, the share of pruning and
growing, peak memory); shorter runs over more tasks, neurons and samples; and M = 10
weight samples at a test batch of 1,000, predict() against a Python loop. The clock is
the CPU time of this process on one thread, so that a busy machine disturbs little.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import rclcpb_core as core  # noqa: E402
from rclcpb.presets import make_scenario, preset  # noqa: E402
from rclcpb.runner import learn  # noqa: E402
from rclcpb.scenarios import Scenario  # noqa: E402

SCENARIO, SAMPLES, TEST_BATCH = "ta-smnist-5k", 10, 1000


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def whole_run(scenario: Scenario) -> dict[str, Any]:
    """One run as a reader starts it. First in the process: the peak is its own."""
    seconds, record = timed(lambda: learn(scenario, preset(SCENARIO)))
    share = [
        s / (whole - s)
        for s, whole in zip(record.structure_seconds[1:], record.seconds[1:], strict=True)
    ]
    return {
        "cpu_seconds": seconds,
        "seconds": record.seconds,
        "structure_seconds": record.structure_seconds,
        "structure_share": share,  # to the rest of the task's time; task 1 has none
        "hidden": record.hidden,
        "peak_mib": record.peak_mib,
    }


def thinned(scenario: Scenario, every: int) -> Scenario:
    """Every so many training images of each task."""
    tasks = tuple(
        replace(task, x_train=task.x_train[::every], y_train=task.y_train[::every])
        for task in scenario.tasks
    )
    return replace(scenario, tasks=tasks)


def growth(scenario: Scenario) -> dict[str, list[dict[str, float]]]:
    """Seconds of short runs of fixed size: with tasks, neurons a layer and samples."""
    config = replace(preset(SCENARIO, "vcl"), epochs=5)

    def seconds(scenario: Scenario, hidden: int = 128) -> float:
        sized = replace(config, hidden=(hidden, hidden))
        return timed(lambda: learn(scenario, sized))[0]

    tasks = range(1, len(scenario.tasks) + 1)
    images = len(scenario.tasks[0].y_train)
    return {
        "tasks": [
            {
                "n": n,
                "cpu_seconds": seconds(replace(scenario, tasks=scenario.tasks[:n])),
            }
            for n in tasks
        ],
        "neurons": [{"n": n, "cpu_seconds": seconds(scenario, n)} for n in (64, 128, 256, 512)],
        "samples": [
            {"n": images // k, "cpu_seconds": seconds(thinned(scenario, k))} for k in (8, 4, 2, 1)
        ],
    }


@torch.no_grad()
def looped(net: core.ProgressiveBNN, x: Tensor) -> Tensor:
    """The mean over weight samples as one writes it first."""
    return torch.stack([net(x, 0).softmax(1) for _ in range(SAMPLES)]).mean(0)


def prediction(trunk: bool, hidden: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Milliseconds of M weight samples: a loop, and predict()."""
    torch.manual_seed(0)
    shape = (3, 32, 32) if trunk else (1, 28, 28)
    net = core.ProgressiveBNN(shape, hidden, core.Config().layer_settings(), trunk)
    net.add_head(5 if trunk else 10)
    times: dict[str, list[float]] = {"loop": [], "predict": []}
    for _ in range(rounds):
        x = torch.rand(TEST_BATCH, *shape) if trunk else torch.rand(TEST_BATCH, 784)
        x = x.contiguous(memory_format=torch.channels_last) if trunk else x
        times["loop"].append(timed(partial(looped, net, x))[0])
        times["predict"].append(timed(partial(core.predict, net, x, 0, SAMPLES))[0])
    loop, ours = (1e3 * float(np.median(t)) for t in times.values())
    return {
        "kind": "conv" if trunk else "mlp",
        "hidden": list(hidden),
        "loop_milliseconds": loop,
        "predict_milliseconds": ours,
        "faster": loop / ours,
    }


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cli.add_argument("--out", type=Path, default=HERE / "runs" / "run.json")
    args = cli.parse_args()
    torch.set_num_threads(1)
    scenario = make_scenario(SCENARIO)
    run = whole_run(scenario)
    print(
        f"{SCENARIO}: {run['cpu_seconds']:.1f} s, peak {run['peak_mib']} MiB, pruning"
        f" and growing at most {100 * max(run['structure_share']):.2f} % of a task"
    )
    sweeps = growth(scenario)
    for name, rows in sweeps.items():
        cells = ", ".join(f"{row['n']}: {row['cpu_seconds']:.1f} s" for row in rows)
        print(f"{name}: {cells}")
    mlps = [prediction(False, (h, k), 40) for h, k in ((100, 100), (160, 128), (256, 256))]
    predictions = [*mlps, prediction(True, (128, 128), 4)]
    for row in predictions:
        print(
            f"prediction, {row['kind']} {row['hidden']}, M = {SAMPLES}: loop"
            f" {row['loop_milliseconds']:.1f} ms, predict"
            f" {row['predict_milliseconds']:.1f} ms, {row['faster']:.2f} times as fast"
        )
    about = {
        "scenario": SCENARIO,
        "threads": 1,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": getattr(os, "getloadavg", lambda: (None,))()[0],
        "run": run,
        "growth": sweeps,
        "prediction": predictions,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
