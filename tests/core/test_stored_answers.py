"""Stored answers: what the network said of stored images is what later batches teach."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F

import rclcpb_core as core
from rclcpb import method, runner

TOLD: dict[str, Any] = {"stored_targets": "answers", "replay_mix": 4}


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_answers_are_the_network_s_own_at_the_end_of_a_task(heads: Any) -> None:
    run = runner.Run(runner.make("rcl-cpb", tiny.scenario(heads=heads), tiny.config(**TOLD)))
    learner: Any = run.method
    next(iter(run))
    stored = learner.coreset[0]
    assert stored.answers.shape == (6, 2)
    torch.testing.assert_close(stored.answers.sum(1), torch.ones(6))
    with method.seeded(0, 0, "answers"):
        said = core.predict(learner.net, stored.x, 0, core.ANSWER_SAMPLES).probabilities
    assert torch.equal(stored.answers, said)


def test_one_head_s_sets_are_padded_for_classes_that_came_later() -> None:
    run = runner.Run(runner.make("rcl-cpb", tiny.scenario(), tiny.config(**TOLD)))
    run.finish("rcl-cpb")
    learner: Any = run.method
    (everything,) = learner.stored_sets(3)
    assert everything.answers.shape == (18, 6)
    assert (everything.answers[:6, 2:] == 0).all()
    assert torch.equal(everything.answers[6:12, :4], learner.coreset[1].answers)


def test_a_set_without_answers_has_its_labels() -> None:
    one = core.Samples(torch.rand(3, 4), torch.tensor([2, 0, 1]))
    two = one._replace(answers=torch.rand(3, 2).softmax(1))
    head = core.BayesLinear(4, 3, core.Config().layer_settings())
    answers = method.answers_of([two, one], head)
    assert torch.equal(answers[3:], F.one_hot(one.y, 3).float())
    assert torch.equal(answers[:3, :2], two.answers) and (answers[:3, 2] == 0).all()


def test_a_mixed_batch_learns_labels_of_new_images_and_answers_of_stored_ones() -> None:
    new = core.Samples(torch.rand(2, 4), torch.tensor([0, 2]))
    old = core.Samples(torch.rand(1, 4), torch.tensor([1]), answers=torch.tensor([[0.2, 0.8, 0]]))
    (both,) = method.joined(new, old)
    expected = torch.tensor([[1, 0, 0], [0, 0, 1], [0.2, 0.8, 0]])
    assert both.answers is not None and torch.equal(both.answers, expected)


def test_answers_change_what_is_learned_and_labels_do_not_need_them() -> None:
    """The control: with labels as targets, nothing is stored but images."""
    nets = []
    for targets in ("labels", "answers"):
        config = tiny.config(**TOLD | {"stored_targets": targets})
        run = runner.Run(runner.make("rcl-cpb", tiny.scenario(heads="multi"), config))
        run.finish("rcl-cpb")
        learner: Any = run.method
        assert (learner.coreset[0].answers is None) == (targets == "labels")
        nets.append(learner.net)
    assert not torch.equal(nets[0].hidden[0].mu[:100], nets[1].hidden[0].mu[:100])


def test_stored_answers_stay_with_a_run_that_goes_on() -> None:
    run = runner.Run(runner.make("rcl-cpb", tiny.scenario(heads="multi"), tiny.config(**TOLD)))
    next(iter(run))
    state = run.method.state()
    again: Any = runner.make("rcl-cpb", tiny.scenario(heads="multi"), tiny.config(**TOLD))
    again.load(state)
    learner: Any = run.method
    assert torch.equal(again.coreset[0].answers, learner.coreset[0].answers)
    assert any(name.startswith("answers.") for name in state)
