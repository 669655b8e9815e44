"""What does a network with a head a task doubt, and whose image does it take one for?

    python benchmarks/doubt.py mh-cifar100 --tasks 4
    python benchmarks/doubt.py pmnist --tasks 5 --seeds 0

RCL-CPB+ and RCL-CPB natural learn the first tasks in a third of their presets' epochs, and so
does the deterministic twin of RCL-CPB+, which has no widths and no KL. After each task every
head is asked about test images of its own task: told the task, how right, how sure, how well
calibrated. After the last, each is asked about images of tasks to come, blends of two test
images of its task and, if it reads colour, SVHN, too; and about the other heads' images: how
often is the head that is least in doubt the right one? Networks answer by draws and, as the
control, by their means; all as they stand, without a fit to stored images. One line of JSON a
run is added to book/results/doubt/SCENARIO.jsonl; what is there already is not run again.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from regime import parser, rows_of, same_run
from torch import Tensor

import rclcpb_core as core
from rclcpb import metrics
from rclcpb.images import load_images
from rclcpb.inference import least_in_doubt, told_apart
from rclcpb.presets import make_scenario, preset
from rclcpb.runner import Run
from rclcpb.scenarios import Scenario

NETWORKS = ("plus", "twin", "natural")
WAYS = ("draws", "means")
DRAWS, STRANGE, TESTED = 10, 250, 1000  # of weights; images of a kind; test images a task


class Unasked(Run):
    """A run without its evaluations, which would fit every old task to what is stored."""

    def evaluate(self, j: int) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.0


def settings(scenario: str, network: str) -> core.Config:
    """A third of the preset's epochs; the twin is RCL-CPB+ with no widths and no KL."""
    config = preset(scenario, "rcl-cpb-natural" if network == "natural" else "rcl-cpb-plus")
    config = replace(config, epochs=max(1, config.epochs // 3))
    flat = {"rho_init": -30.0, "lr_rho": 1e-9, "kl_weight": 0.0, "replay_kl": 0.0}
    return replace(config, **flat) if network == "twin" else config


@torch.no_grad()
def answer(net: core.ProgressiveBNN, x: Tensor, head: int, way: str) -> core.Prediction:
    """A head's answers by draws of the weights, or by their means."""
    if way == "draws":
        return core.predict(net, x, head, DRAWS)
    seen = net.seen_by(head)
    p = torch.cat([seen(part, head, core.by_means).softmax(1) for part in x.split(250)])
    entropy = torch.special.entr(p).sum(1)
    return core.Prediction(p, entropy, torch.zeros_like(entropy))


def told(net: core.ProgressiveBNN, tests: Sequence[core.Samples], way: str) -> list[list[float]]:
    """Accuracy, NLL and calibration error of each task, asked by its own head."""
    return [
        [*metrics.score(answer(net, test.x, test.head, way).probabilities, test.y)]
        for test in tests
    ]


def blended(test: core.Samples) -> Tensor:
    """Images laid over images of another class."""
    order = torch.randperm(len(test.y))
    other = test.y != test.y[order]
    return ((test.x + test.x[order]) / 2)[other][:STRANGE]


def strange(scenario: Scenario, tasks: int, data_dir: Any) -> dict[str, Tensor]:
    """As many images of the tasks to come, of all of them, and of SVHN for who reads colour."""
    later = [core.samples(scenario, j, "test").x for j in range(tasks, len(scenario.tasks))]
    coming = torch.cat(later)
    found = {"classes to come": coming[torch.randperm(len(coming))[:STRANGE]]}
    if scenario.trunk:
        numbers = load_images("svhn", data_dir).x_test
        some = np.random.default_rng(0).permutation(len(numbers))[:STRANGE]
        found["SVHN"] = scenario.inputs(numbers[some], scenario.tasks[0], torch.device("cpu"))
    return found


def separated(
    net: core.ProgressiveBNN, tests: Sequence[core.Samples], odd: dict[str, Tensor], way: str
) -> dict[str, dict[str, float]]:
    """AUC for telling strange images from a head's own by each doubt; means over the heads."""
    found: dict[str, dict[str, list[float]]] = {}
    for test in tests:
        with core.seeded("blends", test.head):
            kinds = odd | {"blends": blended(test)}
        known = answer(net, test.x, test.head, way)
        for kind, images in kinds.items():
            other = answer(net, images, test.head, way)
            for doubt in ("entropy", "mutual_information"):
                pair = (getattr(one, doubt).numpy() for one in (known, other))
                found.setdefault(kind, {}).setdefault(doubt, []).append(told_apart(*pair))
    return {
        kind: {doubt: float(np.mean(v)) for doubt, v in of.items()} for kind, of in found.items()
    }


def untold(net: core.ProgressiveBNN, tests: Sequence[core.Samples], way: str) -> dict[str, float]:
    """How often the head least in doubt is the right one, and says the right label."""
    right = []
    for test in tests:
        answers = [answer(net, test.x, one.head, way) for one in tests]
        found = least_in_doubt(answers) == test.head
        hit = answers[test.head].probabilities.argmax(1) == test.y
        right.append([one.float().mean().item() for one in (found, found & hit)])
    task, label = np.mean(right, 0).tolist()
    return {"task": task, "label": label, "chance": 1 / len(tests)}


def measured(whole: Scenario, tasks: int, config: core.Config, seed: int, data: Any) -> dict:
    """A run, asked after each task and, at length, after the last."""
    scenario = replace(whole, tasks=whole.tasks[:tasks])
    run, row = Unasked(core.Learner(scenario, config, seed)), {"told": {way: [] for way in WAYS}}
    whole_tests = (core.samples(scenario, t, "test") for t in range(tasks))
    tests = [one._replace(x=one.x[:TESTED], y=one.y[:TESTED]) for one in whole_tests]
    for t, _ in enumerate(run):
        net = run.method.net
        with core.seeded("doubt", seed, t):
            for way in WAYS:
                row["told"][way].append(told(net, tests[: t + 1], way))
    with core.seeded("doubt", seed):
        odd = strange(whole, tasks, data)
        row |= {"auc": {way: separated(net, tests, odd, way) for way in WAYS}}
        row |= {"untold": {way: untold(net, tests, way) for way in WAYS}}
    return row | {"hidden": net.sizes()}


def line(row: dict[str, Any], way: str) -> str:
    """A run in words."""
    accuracy, nll, ece = np.mean(row["told"][way][-1], 0)
    words = f"{row['network']} by its {way}, seed {row['seed']}: {100 * accuracy:.1f} % right"
    words += f", NLL {nll:.3f}, calibration error {100 * ece:.1f} %; AUC"
    for kind, of in row["auc"][way].items():
        words += f" {kind} {of['entropy']:.3f} ({of['mutual_information']:.3f})"
    found = row["untold"][way]
    return f"{words}; right head {100 * found['task']:.1f} %, label {100 * found['label']:.1f} %"


def main() -> None:
    args = parser(__doc__, "doubt", [0, 1, 2]).parse_args()
    path = args.out / f"{args.scenario}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in args.seeds:
        whole = make_scenario(args.scenario, seed, args.data_dir)
        for network in NETWORKS:
            config = settings(args.scenario, network)
            key = {"network": network, "seed": seed, "tasks": args.tasks}
            row = next((r for r in rows_of(path) if same_run(r, key, config)), None)
            if row is None:
                began = time.process_time()
                row = key | {"config": config.as_json()}
                row |= measured(whole, args.tasks, config, seed, args.data_dir)
                row |= {"seconds": time.process_time() - began}
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(*(line(row, way) for way in WAYS), sep="\n", flush=True)


if __name__ == "__main__":
    main()
