"""The page for users of other libraries: its code, on stand-ins for what these give."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rclcpb.methods.network import PlainConfig
from rclcpb.runner import learn

PAGE = Path(__file__).resolve().parents[1] / "book" / "F_other_tools.md"
PAIRS = ((0, 1), (2, 3))


@pytest.fixture
def page() -> dict[str, Any]:
    """All that the page defines."""
    place: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), place)
    return place


def images(pair: tuple[int, int], count: int) -> list[tuple[torch.Tensor, int]]:
    """Channels first, each class a colour and a row of its own."""
    made = []
    for i in range(count):
        x = torch.zeros(2, 6, 5)
        x[pair[i % 2] % 2, pair[i % 2]] = 1
        made.append((x, pair[i % 2]))
    return made


def avalanche() -> Any:
    def stream(count: int) -> list[Any]:
        return [
            SimpleNamespace(dataset=[(x, y, t) for x, y in images(pair, count)])
            for t, pair in enumerate(PAIRS)
        ]

    return SimpleNamespace(train_stream=stream(20), test_stream=stream(4))


class Mammoth:
    """Moves on by a task each time it is asked for its loaders."""

    N_TASKS = len(PAIRS)

    def __init__(self) -> None:
        self.task = 0

    def get_data_loaders(self) -> list[Any]:
        pair, self.task = PAIRS[self.task], self.task + 1
        train = [(x + 9, torch.tensor(y), x) for x, y in images(pair, 20)]
        return [SimpleNamespace(dataset=part) for part in (train, images(pair, 4))]


@pytest.mark.parametrize("library", ["avalanche", "mammoth"])
@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_benchmark_becomes_a_scenario(page: dict[str, Any], library: str, heads: str) -> None:
    given = avalanche() if library == "avalanche" else Mammoth()
    scenario = page[f"from_{library}"](given, heads)
    assert scenario.heads == heads and [task.classes for task in scenario.tasks] == list(PAIRS)
    task = scenario.tasks[1]
    assert task.x_train.shape == (20, 6, 5, 2) and task.x_test.shape == (4, 6, 5, 2)
    first = next(x for x, y in images(PAIRS[1], 1))
    assert np.array_equal(task.x_train[0], first.permute(1, 2, 0)) and task.y_train[0] == 2
    record = learn(scenario, PlainConfig((8,), epochs=20, lr=0.02, memory=4), method="er")
    assert len(record.accuracy) == 2 and record.accuracy[1][1] == 1
