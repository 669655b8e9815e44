"""Scenarios: the paper's tasks, and a reader's own arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from on_disk import one_sentence, save, small_images

import rclcpb_core as core
from rclcpb import scenarios
from rclcpb.files import RclCpbError
from rclcpb.images import Images
from rclcpb.presets import NAMES, make_scenario
from rclcpb.runner import learn
from rclcpb.scenarios import from_arrays

CPU = torch.device("cpu")


# --------------------------------------------------------------------------- scenarios


def test_permutations_are_fixed_by_the_seed() -> None:
    images = small_images()
    one, again, other = (scenarios.permuted_mnist(images, 4, seed=s) for s in (5, 5, 6))
    for t in range(4):
        shuffle = one.tasks[t].permutation
        assert sorted(shuffle.tolist()) == list(range(784))
        assert np.array_equal(shuffle, again.tasks[t].permutation)
        assert not np.array_equal(shuffle, other.tasks[t].permutation)
        for u in range(t):
            assert not np.array_equal(shuffle, one.tasks[u].permutation)
    assert one.sha256() == again.sha256() != other.sha256()


def test_permuted_inputs_are_the_shuffled_pixels() -> None:
    images = small_images()
    scenario = scenarios.permuted_mnist(images, 2)
    for task in scenario.tasks:
        x = scenario.inputs(task.x_train, task, CPU)
        expected = images.x_train.reshape(40, 784)[:, task.permutation] / 255
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
    assert scenario.heads == "multi" and scenario.tasks[0].classes == tuple(range(10))


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_split_mnist(digits: Images, heads: Any) -> None:
    scenario = scenarios.split_mnist(digits, heads)
    assert [task.classes for task in scenario.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    for task in scenario.tasks:
        assert set(task.y_train.tolist()) == set(task.classes) == set(task.y_test.tolist())
        assert len(task.y_train) == 800 and len(task.y_test) == 200
        for label in task.classes:
            assert np.array_equal(
                task.x_train[task.y_train == label], digits.x_train[digits.y_train == label]
            )


def test_split_cifar100_draws_the_class_order_from_the_seed() -> None:
    images = small_images((32, 32, 3), 100, 200)
    one, again, other = (scenarios.split_cifar100(images, seed=s) for s in (1, 1, 2))
    orders = [[c for task in s.tasks for c in task.classes] for s in (one, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(100)) != orders[0]
    assert len(one.tasks) == 20 and one.trunk and one.image_shape() == (3, 32, 32)
    task = one.tasks[3]
    x = one.inputs(task.x_train, task, CPU)
    expected = (task.x_train.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_mnist_svhn_cifar10_pads_the_digits() -> None:
    mnist, colour = small_images(), small_images((32, 32, 3))
    scenario = scenarios.mnist_svhn_cifar10(mnist, colour, colour)
    first = scenario.tasks[0]
    assert first.x_train.shape == (40, 32, 32, 3) and scenario.heads == "multi"
    for channel in range(3):
        inner = first.x_train[:, 2:30, 2:30, channel]
        assert np.array_equal(inner, mnist.x_train)
    border = np.ones((32, 32), bool)
    border[2:30, 2:30] = False
    assert (first.x_train[:, border] == 0).all()
    assert [task.name for task in scenario.tasks] == ["MNIST", "SVHN", "CIFAR-10"]
    assert scenario.trunk and np.array_equal(scenario.tasks[1].x_test, colour.x_test)


def test_targets_are_columns_of_the_tasks_head() -> None:
    tasks = ((7, 3), (5, 9), (3, 1))
    made = [tiny.arrays(classes) for classes in tasks]
    single, multi = (from_arrays(made, heads) for heads in ("single", "multi"))
    assert [single.columns(t) for t in range(3)] == [(3, 7), (3, 7, 5, 9), (3, 7, 5, 9, 1)]
    labels = np.array([3, 1, 1, 3])
    assert single.targets(labels, 2, CPU).tolist() == [0, 4, 4, 0]
    assert multi.columns(2) == (1, 3)
    assert multi.targets(labels, 2, CPU).tolist() == [1, 0, 0, 1]
    assert single.targets(np.array([9, 5], np.uint8), 1, CPU).tolist() == [3, 2]
    assert single.targets(labels, 2, CPU).dtype == torch.long


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=8, unique=True))
def test_any_integers_can_be_labels(classes: list[int]) -> None:
    """-1 and +1 are two classes, and a billion needs no table of a billion."""
    x, y = np.zeros((len(classes), 4), np.uint8), np.array(classes)
    scenario = from_arrays([(x, y, x, y)])
    columns = scenario.columns(0)
    targets = scenario.targets(y, 0, CPU).tolist()
    assert [columns[i] for i in targets] == classes


def test_every_scenario_by_name(
    tmp_path: Path, fast_digits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, "mnist", small_images())
    save(tmp_path, "cifar100", small_images((32, 32, 3), 100, 200))
    for name in ("svhn", "cifar10"):
        save(tmp_path, name, small_images((32, 32, 3)))
    expected = {
        "pmnist": (10, "multi"),
        "pmnist-shared": (10, "single"),
        "mh-smnist": (5, "multi"),
        "ta-smnist": (5, "single"),
        "mh-cifar100": (20, "multi"),
        "ta-cifar100": (20, "single"),
        "mnist-svhn-cifar10": (3, "multi"),
    }
    for name in NAMES:
        scenario = make_scenario(name, 0, tmp_path)
        tasks, heads = expected[name.removesuffix("-5k")]
        assert (len(scenario.tasks), scenario.heads) == (tasks, heads)
        assert scenario.name == name
        assert scenario.trunk == ("cifar" in name)
        total = 4000 if name.endswith("-5k") else 40
        if name.startswith(("mh-smnist", "ta-smnist")):
            assert sum(len(task.y_train) for task in scenario.tasks) == total


def test_holdout_takes_its_test_set_from_the_training_images() -> None:
    scenario = tiny.scenario(n=30)
    held = scenarios.holdout(scenario)
    for task, whole in zip(held.tasks, scenario.tasks, strict=True):
        assert len(task.y_test) == 10 and len(task.y_train) == 50
        assert np.array_equal(task.x_test, whole.x_train[5::6])
        rest = np.delete(whole.x_train, slice(5, None, 6), axis=0)
        assert np.array_equal(task.x_train, rest)


def test_checksum_of_a_scenario_sees_every_array() -> None:
    base = tiny.scenario()
    x, y, x_test, y_test = tiny.arrays((0, 1))
    sums = {
        from_arrays([task]).sha256()
        for task in [
            (x, y, x_test, y_test),
            (255 - x, y, x_test, y_test),
            (x, 1 - y, x_test, y_test),
            (x, y, 255 - x_test, y_test),
            (x, y, x_test, 1 - y_test),
        ]
    }
    assert len(sums) == 5 and base.sha256() == tiny.scenario().sha256() not in sums


def test_a_scenarios_identity_is_more_than_the_bytes_of_its_arrays() -> None:
    base = tiny.scenario(heads="single")
    task = base.tasks[0]
    flat = replace(
        task, x_train=task.x_train.reshape(48, 4, 9), x_test=task.x_test.reshape(24, 4, 9)
    )
    others = [
        replace(base, heads="multi"),
        replace(base, scale=2.0),
        replace(base, tasks=(flat,)),
        replace(base, tasks=base.tasks[:1]),
        replace(base, tasks=(replace(task, mirror=False), *base.tasks[1:])),
    ]
    found = {one.identity() for one in others}
    assert len(found) == 5 and base.identity() == tiny.scenario(heads="single").identity()
    assert base.identity() not in found


# --------------------------------------------------------------------- a reader's data


def test_from_arrays_reads_uint8_and_floats() -> None:
    x, y, *test = tiny.arrays((0, 1))
    bytes_, floats = (from_arrays([(a, y, *test)]) for a in (x, x / 255))
    a, b = (s.inputs(s.tasks[0].x_train, s.tasks[0], CPU) for s in (bytes_, floats))
    torch.testing.assert_close(a, b)
    assert a.dtype == b.dtype == torch.float and a.max() == 1 and a.shape == (48, 36)


def test_from_arrays_pads_to_the_largest_and_remembers_the_size() -> None:
    small, large = tiny.arrays((0, 1), size=4), tiny.arrays((2, 3), size=6)
    scenario = from_arrays([small, large])
    first, second = scenario.tasks
    assert first.x_train.shape == second.x_train.shape == (48, 6, 6)
    assert np.array_equal(first.x_train[:, :4, :4], small[0])
    assert first.x_train[:, 4:].max() == 0 == first.x_train[:, :, 4:].max()
    assert np.array_equal(first.x_test[:, :4, :4], small[2])
    assert (first.inputs, second.inputs) == (16, 36)
    assert core.required_neurons(10, second, first) == pytest.approx(15)


def test_from_arrays_takes_vectors_images_and_colour() -> None:
    y = np.array([0, 1, 0, 1])
    for shape, expected in (
        ((9,), (1, 1, 9)),
        ((4, 5), (1, 4, 5)),
        ((4, 5, 3), (3, 4, 5)),
    ):
        x = np.random.default_rng(0).random((4, *shape))
        scenario = from_arrays([(x, y, x, y)])
        assert scenario.image_shape() == expected
        assert scenario.inputs(x, scenario.tasks[0], CPU).shape == (4, x[0].size)
        learn(scenario, tiny.config(coreset=1, epochs=1))


def test_reading_does_not_change_a_readers_arrays() -> None:
    x, y = np.full((4, 5, 5), 0.75, np.float32), np.array([0, 1, 0, 1])
    task = from_arrays([(x, y, x, y)]).tasks[0]
    scenario = scenarios.Scenario("own", (task,), "single", center=0.5, scale=0.25)
    result = scenario.inputs(task.x_train, task, CPU)
    assert (result == 1).all() and (task.x_train == 0.75).all() and (x == 0.75).all()


GOOD = tiny.arrays((0, 1))


def changed(place: int, value: Any) -> tuple:
    return (*GOOD[:place], value, *GOOD[place + 1 :])


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "give each task as"),
        ([GOOD[:3]], "give each task as"),
        ([changed(1, GOOD[1][:-1])], "wanted"),  # a label short
        ([changed(1, GOOD[1][:, None])], "wanted"),
        (
            [changed(0, GOOD[0][:, :5])],
            r"task 0: training images \(5, 6\), test",
        ),
        (
            [changed(3, np.full_like(GOOD[3], 7))],
            r"labels \[7\] are outside its classes",
        ),
        ([changed(3, np.zeros_like(GOOD[3]))], r"classes \[1\] have no samples"),
        (
            [changed(0, np.where(GOOD[0] > 250, np.nan, GOOD[0]))],
            "NaN or infinite pixels",
        ),
        (
            [changed(2, np.where(GOOD[2] > 250, np.inf, GOOD[2]))],
            "NaN or infinite pixels",
        ),
        ([changed(0, GOOD[0].astype(int))], "images are int64; give uint8"),
        ([changed(0, GOOD[0] > 9)], "images are bool; give uint8"),
        ([changed(1, GOOD[1] / 2)], "labels are float64; give integers"),
        ([changed(1, GOOD[1].astype(str))], "labels are .*; give integers"),
        ([GOOD, tiny.arrays((2, 3), channels=3)], "the same number of dimensions"),
        ([tuple(a[:0] for a in GOOD)], "wanted"),  # an empty task
        ([(GOOD[0][:, 0, 0], GOOD[1], GOOD[2][:, 0, 0], GOOD[3])], "wanted"),
    ],
)
def test_bad_arrays_are_one_clear_sentence(tasks: list, message: str) -> None:
    with pytest.raises(RclCpbError, match=message) as caught:
        from_arrays(tasks)
    one_sentence(caught.value)


def test_a_trunk_needs_images() -> None:
    for kind in ({}, {"size": 2, "channels": 3}):
        with pytest.raises(RclCpbError, match="trunk needs images"):
            from_arrays([tiny.arrays((0, 1), **kind)], trunk=True)


def test_tasks_of_one_scenario_have_one_shape() -> None:
    tasks = tuple(from_arrays([tiny.arrays((0, 1), size=s)]).tasks[0] for s in (4, 6))
    with pytest.raises(RclCpbError, match="from_arrays pads them"):
        scenarios.Scenario("mixed", tasks, "single")


def test_a_missing_class_in_an_image_set_is_named() -> None:
    images = small_images(classes=9)
    with pytest.raises(RclCpbError, match=r"classes \[9\] have no samples"):
        scenarios.split_mnist(images)
