"""Costs: bytes of what is held while learning, and runs that a search took."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from running import KINDS

from rclcpb.costs import bytes_held, runs_searched
from rclcpb.presets import METHODS
from rclcpb.records import Record


@pytest.fixture(scope="module")
def small() -> Record:
    found = KINDS["one head"].run(epochs=1, replay_steps=1).finish("vcl")
    return replace(found, scenario="ta-smnist-5k")


def test_a_posterior_holds_its_prior_and_images_a_byte_a_pixel(small: Record) -> None:
    assert bytes_held(small) == 784 * small.coreset_total + 4 * small.parameters
    assert bytes_held(replace(small, method="coreset-only")) == 784 * small.coreset_total
    colour = replace(small, method="coreset-only", scenario="mh-cifar100")
    assert bytes_held(colour) == 3 * 32 * 32 * small.coreset_total


def test_stored_answers_are_numbers_too(small: Record) -> None:
    told = replace(small, config=small.config | {"stored_targets": "answers"})
    each, outputs = small.coreset_total // 3, 2 + 4 + 6  # three tasks of two classes
    assert bytes_held(told) == 784 * small.coreset_total + 4 * (small.parameters + each * outputs)


def test_of_what_is_not_in_the_registry_nothing_is_known(small: Record) -> None:
    assert bytes_held(replace(small, method="other")) is None
    assert bytes_held(replace(small, scenario="my own")) is None


def test_runs_are_counted_by_method_and_those_of_the_papers_family_together(
    tmp_path: Path,
) -> None:
    path = tmp_path / "regime" / "pmnist.jsonl"
    path.parent.mkdir()
    methods = ("er", "vcl", "er", "rcl-cpb", "vcl")
    path.write_text("".join(json.dumps({"method": m}) + "\n" for m in methods))
    counts = runs_searched(tmp_path, "pmnist")
    assert (counts["er"], counts["ewc"]) == (2, 0)
    assert counts["rcl-cpb"] == counts["vcl"] == counts["coreset-only"] == 3
    assert runs_searched(tmp_path, "ta-smnist") == dict.fromkeys(METHODS, 0)
