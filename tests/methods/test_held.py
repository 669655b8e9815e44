"""What a method holds beside its network, as the registry says and as its state has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import field
import pytest
import tiny
from field import METHODS, PAIRED

from rclcpb.costs import bytes_held
from rclcpb.presets import OTHERS
from rclcpb.runner import Run

PIXELS = 28 * 28


@pytest.mark.parametrize(("name", "heads"), PAIRED)
def test_bytes_are_those_of_what_is_kept(name: str, heads: Any) -> None:
    scenario = replace(tiny.scenario(heads=heads), name="ta-smnist-5k")
    run = Run(METHODS[name](scenario, field.settings(), 3))
    record, numbers = run.finish(name), 0
    for kind, kept in run.method.kept.items():
        if kind.startswith("logits"):  # NaN: of other heads
            numbers += int(kept.isnan().logical_not().sum())
        elif not kind.startswith("memory"):
            numbers += kept.numel()
    if name == "icarl":  # its old network lacks the newest outputs
        numbers += 2 * (8 + 1)
    assert bytes_held(record) == PIXELS * run.method.stored() + 4 * numbers
    assert name in OTHERS and len(OTHERS) == len(METHODS)


def test_joint_training_keeps_all_images_so_far() -> None:
    method = field.make("joint")
    for t in range(2):
        field.begin(method, t)
    assert method.stored() == sum(len(task.y_train) for task in method.scenario.tasks[:2])
