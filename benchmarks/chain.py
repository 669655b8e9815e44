"""What a chain of networks knows beside the stored images: a probe, on validation data.

    python benchmarks/chain.py ta-smnist --seeds 0 1 2

For a scenario with one head and new classes in every task. One plain, fresh network a task
learns all of the task's images against the stored images of all earlier tasks, which are a
single class to it: "older". Asked for a label, the newest network answers with a class of its
own or with "older", then the one before it is asked, and so on; the probabilities multiply.
Beside it the control, a network that learns the stored images alone, also twice, averaged, as
an ensemble; and the mean of control and chain. All images are distorted as stored images are.
One line of JSON a seed and answer is appended to book/results/chain/SCENARIO.jsonl.
"""

import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from regime import parser, rows_of
from torch import Tensor, nn

from rclcpb.distort import distort
from rclcpb.method import Samples, samples, seeded
from rclcpb.presets import make_scenario, preset
from rclcpb.scenarios import Scenario, holdout
from rclcpb_core import choose_coreset

SIZE = (160, 128)
STEPS = {"chain": 1500, "alone": 3000}  # of a network
BATCH, RATE = 256, 1e-3
Batch = tuple[Tensor, Tensor]  # images and labels


class Data:
    """A scenario's tasks, what is stored of each, and its distortion."""

    def __init__(self, scenario: Scenario, name: str, seed: int) -> None:
        config = preset(name, "rcl-cpb-plus")
        self.scenario, self.kind, self.stored = scenario, config.distort, []
        self.train, self.test = (
            [samples(scenario, t, split) for t in range(len(scenario.tasks))]
            for split in ("train", "test")
        )
        for t, data in enumerate(self.train):
            with seeded(seed, t, "coreset"):
                size, choice = config.coreset, config.coreset_choice
                self.stored.append(data.rows(choose_coreset(data.x, data.y, size, choice)))

    def some(self, of: Sequence[Samples], count: int) -> Batch:
        """So many images of these sets, distorted, with their labels."""
        x, y = torch.cat([one.x for one in of]), torch.cat([one.y for one in of])
        index = torch.randint(len(y), (count,))
        return distort(x[index], self.scenario.image_shape(), self.kind, False), y[index]


def trained(inputs: int, outputs: int, steps: int, batch: Callable[[], Batch]) -> nn.Module:
    """A fresh plain network after so many steps of Adam, at a rate that falls to 0."""
    sizes = (inputs, *SIZE, outputs)
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    net = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net


def link(data: Data, t: int, steps: int) -> nn.Module:
    """The chain's network of task t: its classes, and behind them "older"."""
    first, own = min(data.train[t].y).item(), len(data.scenario.tasks[t].classes)
    older = round(BATCH * (t + 1) / (t + 2)) if t else 0

    def batch() -> Batch:
        x, y = data.some(data.train[t : t + 1], BATCH - older)
        y = y - first  # a task's columns are the last ones of a head that widens
        if older:
            x = torch.cat([x, data.some(data.stored[:t], older)[0]])
            y = torch.cat([y, torch.full((older,), own)])
        return x, y

    return trained(data.train[t].x.shape[1], own + bool(t), steps, batch)


@torch.no_grad()
def along(chain: Sequence[nn.Module], x: Tensor) -> Tensor:
    """p(class) = p(own class) of its task's network times p(older) of all newer ones."""
    left, parts = torch.ones(len(x), 1), []
    for t in reversed(range(len(chain))):
        p = chain[t](x).softmax(1)
        own = p[:, :-1] if t else p
        parts.append(left * own)
        left = left * p[:, -1:]
    return torch.cat(parts[::-1], 1)  # (N, classes)


@torch.no_grad()
def together(nets: Sequence[nn.Module], x: Tensor) -> Tensor:
    return torch.stack([net(x).softmax(1) for net in nets]).mean(0)


def measured(answers: Sequence[Tensor], tests: Sequence[Samples]) -> dict[str, object]:
    """Accuracy, and what of it is the task, what the label once the task is told."""
    right, task, told, first = [], [], [], 0
    for p, test in zip(answers, tests, strict=True):
        mine = slice(first, first := int(test.y.max()) + 1)
        right.append((p.argmax(1) == test.y).float().mean().item())
        label = p.argmax(1)
        task.append(((label >= mine.start) & (label < mine.stop)).float().mean().item())
        own = p[:, mine].argmax(1) + mine.start
        told.append((own == test.y).float().mean().item())
    means = {"accuracy": right, "right_task": task, "told_task": told}
    return {name: float(np.mean(values)) for name, values in means.items()} | {"tasks": right}


def rows(
    name: str, scenario: Scenario, seed: int, steps: dict[str, int]
) -> list[dict[str, object]]:
    """The four answers of a seed."""
    data, began = Data(scenario, name, seed), time.process_time()
    torch.manual_seed(seed)
    classes, inputs = len(scenario.columns(len(scenario.tasks) - 1)), data.train[0].x.shape[1]
    alone = [
        trained(inputs, classes, steps["alone"], lambda: data.some(data.stored, BATCH))
        for _ in range(2)
    ]
    chain = [link(data, t, steps["chain"]) for t in range(len(scenario.tasks))]
    one, two = ([together(alone[:n], test.x) for test in data.test] for n in (1, 2))
    links = [along(chain, test.x) for test in data.test]
    both = [(a + b) / 2 for a, b in zip(one, links, strict=True)]
    named = {"alone": one, "alone, two": two, "chain": links, "alone and chain": both}
    about = {"seed": seed, "seconds": time.process_time() - began}
    return [about | {"answer": k} | measured(p, data.test) for k, p in named.items()]


def main() -> None:
    args = parser(__doc__, "chain", [0]).parse_args()
    torch.set_num_threads(1)
    path = args.out / f"{args.scenario}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds:
        scenario = holdout(make_scenario(args.scenario, seed, args.data_dir))
        found = [row for row in rows_of(path) if row["seed"] == seed]
        if not found:
            found = rows(args.scenario, scenario, seed, STEPS)
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
        for row in found:
            accuracy = [f"{100 * row[k]:.2f}" for k in ("accuracy", "right_task", "told_task")]
            print(seed, row["answer"], *accuracy, flush=True)


if __name__ == "__main__":
    main()
