"""Numbers at the edge: every run stays finite, or ends in a sentence that says why."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import tiny
import torch
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

import rclcpb_core as core
from rclcpb import runner
from rclcpb.files import RclCpbError
from rclcpb.records import Record
from rclcpb.scenarios import Scenario, from_arrays

HINTS = get_type_hints(core.Config)


def choices(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(HINTS[name]))


def learned(scenario: Scenario, config: core.Config) -> Record | None:
    """The record, all of it finite; or none, for a clear reason."""
    try:
        record = runner.learn(scenario, config)
    except RclCpbError as error:
        said = str(error)
        assert re.match(r"task \d+, (train|replay|fit \d+|evaluation)\b", said)
        assert "not finite" in said and "lower lr_mu and lr_rho, or rho_init" in said
        return None
    json.dumps(asdict(record), allow_nan=False)
    return record


def constant(classes: tuple[int, ...], n: int, value: float, size: int = 6) -> tuple:
    """A task whose images are all the same, n a class."""
    x = np.full((n * len(classes), size, size, 3), value, np.float32)
    y = np.repeat(classes, n)
    return x, y, x, y


@settings(max_examples=25)
@given(
    tasks=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    per_class=st.integers(1, 3),
    value=st.sampled_from([0.0, 0.5, 1.0, 1e10]),
    heads=st.sampled_from(["single", "multi"]),
    trunk=st.booleans(),
    config=st.fixed_dictionaries(
        {
            "rho_init": st.floats(-1e4, 10) | st.just(10.0),
            "prior_var": st.sampled_from([1e-12, 1.0, 1e12]),
            "beta": st.sampled_from([0.0, 0.1, 1e30]),
            "gamma": st.sampled_from([0.0, 0.1, 1e30]),
            "sampling": choices("sampling"),
            "mu_init": choices("mu_init"),
            "new_into_old": choices("new_into_old"),
            "distance_classes": choices("distance_classes"),
            "coreset_choice": choices("coreset_choice"),
            "distort": choices("distort"),
            "augment": choices("augment"),
            "replay_kl": st.sampled_from([0.0, 1.0]),
            "reinit_head": st.booleans(),
            "lr_mu": st.sampled_from([1e-6, 0.02, 1e3]),
        }
    ),
)
def test_constant_images_few_samples_and_any_noise(
    tasks: list[int], per_class: int, value: float, heads: Any, trunk: bool, config: Any
) -> None:
    """Also one class a task with one head, one sample a class: then nothing can be stored."""
    tasks = [max(n, 2) for n in tasks] if heads == "multi" else tasks
    made = [constant(tuple(range(3 * t, 3 * t + n)), per_class, value) for t, n in enumerate(tasks)]
    stored = min(1, (per_class - 1) * min(tasks))
    small = {"coreset": stored, "hidden": (6, 5), "epochs": 2, "replay_steps": 3}
    record = learned(from_arrays(made, heads, trunk), tiny.config(**(config | small)))
    event("finite" if record else "a sentence")
    if record is None:  # ordinary numbers must not end here
        ordinary = abs(config["rho_init"] + 4) < 4 and config["lr_mu"] < 1
        assert not ordinary or value > 1 or config["prior_var"] != 1
    elif config["beta"] == 0 and config["gamma"] == 1e30:
        assert all(sum(added) > 0 for added in record.added[1:])


@settings(max_examples=12)
@given(rho=st.floats(-1e5, -40), sampling=choices("sampling"))
def test_without_noise_the_network_is_its_mean(rho: float, sampling: Any) -> None:
    """sigma -> 0, down to where exp gives 0 itself."""
    net = tiny.network(tiny.config(rho_init=rho, sampling=sampling), spread=False)
    x = tiny.inputs(net)
    mean = net(x, 0, core.by_means)
    torch.testing.assert_close(net(x), mean, rtol=1e-4, atol=1e-5)
    found = core.predict(net, x, 0, 5)
    torch.testing.assert_close(found.probabilities, mean.softmax(1))
    assert found.mutual_information.abs().max() < 1e-5
    assert net.kl().isfinite()
    assert core.utilisation(net, tiny.config(beta=1.0))[0] > 0.99
    assert [int(d) for d in core.prune(net, tiny.config(beta=1.0))] == [0, 0]


@settings(max_examples=4)
@given(rho=st.floats(6, 10), sampling=choices("sampling"))
def test_with_noise_alone_everything_is_pruned(rho: float, sampling: Any) -> None:
    """rho -> 10: sigma is 148, no weight is significant, and it is still a network."""
    net = tiny.network(tiny.config(rho_init=rho, sampling=sampling), spread=False)
    found = core.predict(net, tiny.inputs(net), 0, 20)
    assert all(part.isfinite().all() for part in found)
    assert (found.mutual_information > 0.3).all()  # it knows that it does not know
    sizes = [layer.shape[0] * layer.shape[1] for layer in net.hidden]
    assert [int(d) for d in core.prune(net, tiny.config(beta=1.0))] == sizes
    assert learned(tiny.scenario(), tiny.config(rho_init=rho, sampling=sampling))


@settings(max_examples=8)
@given(
    added=st.lists(st.sampled_from([0, 1, 1000]), min_size=2, max_size=2),
    sampling=choices("sampling"),
    zero=st.booleans(),
)
@example(added=[1000, 1000], sampling="weight", zero=False)
@example(added=[1000, 1000], sampling="local", zero=True)
def test_a_thousand_neurons_added_at_once(added: list[int], sampling: Any, zero: bool) -> None:
    net = tiny.network(tiny.config(sampling=sampling))
    x, before = tiny.inputs(net), tiny.snapshot(net)
    old = net(x, 0, core.by_means)
    core.grow(net, added, zero)
    assert net.sizes() == [10 + added[0], 8 + added[1]]
    kept = net.hidden[1].split(net.hidden[1].mu)[0][:8, :10]
    assert torch.equal(kept, before["hidden.1.mu"][:80].view(8, 10))
    logits = net(x, 0, core.by_means)
    assert logits.isfinite().all()
    if zero:
        torch.testing.assert_close(logits, old)


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_a_run_that_adds_a_thousand_neurons_at_once(sampling: Any) -> None:
    config = tiny.config(sampling=sampling, hidden=(1000, 4), gamma=1e9, epochs=2)
    record = learned(tiny.scenario(tiny.PAIRS[:2]), config)
    assert record is not None and record.hidden == [[1000, 4], [2000, 8]]
    assert record.added[1] == [1000, 4]


@pytest.mark.parametrize("changes", [{"lr_mu": 1e30}, {"lr_rho": 1e30}])
def test_what_is_not_finite_names_the_task_the_epoch_and_the_cause(
    changes: dict[str, float],
) -> None:
    """A first task learns; the same numbers, made impossible, stop the second."""
    learner = core.Learner(tiny.scenario(), tiny.config(gamma=1e9, beta=1e9))
    run = runner.Run(learner)
    stages = iter(run)
    assert math.isfinite(next(stages).train_nll)
    learner.config = tiny.config(gamma=1e9, beta=1e9, **changes)
    cause = r"not finite \(NLL .*, KL .*\): lower lr_mu and lr_rho, or rho_init"
    with pytest.raises(RclCpbError, match=rf"^task 2, train, epoch \d.*{cause}"):
        next(stages)
    assert len(run.stages) == 1  # what was learned before is still there
