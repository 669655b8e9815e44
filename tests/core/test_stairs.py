"""Old units that never read new ones: what is not there is in no sum and no answer."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import test_training
import tiny
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import fast, runner

NONE: dict[str, Any] = {"new_into_old": "none"}


def grown(
    growth: Sequence[Sequence[int]] = ([2, 3], [0, 2], [3, 0], [1, 1]),
    trunk: bool = False,
    spread: bool = True,
    **changes: Any,
) -> core.ProgressiveBNN:
    """A network that grew so, with a head before each growth and one after it."""
    net = tiny.network(tiny.config(**NONE, **changes), trunk, heads=(3,), spread=False)
    for alpha in growth:
        core.grow(net, alpha, zero=True, old_heads=False)
        net.add_head(2)
    for layer in tiny.layers(net) if spread else ():
        tiny.spread_out(layer)
    return net


def whole(layer: Any, vector: Tensor) -> Tensor:
    """The matrix of a staircase, put together step by step."""
    matrix, row, place = torch.zeros(layer.shape), 0, 0
    for units, reads in layer.steps:
        block = vector[place : place + units * reads].view(units, reads)
        matrix[row : row + units, :reads] = block
        row, place = row + units, place + units * (reads + 1)
    return matrix


def test_a_staircase_is_a_matrix_with_nothing_above_its_steps() -> None:
    torch.manual_seed(0)
    layer: Any = grown().hidden[1]
    assert layer.steps == [(8, 10), (3, 12), (2, 12), (1, 16)]
    weight, bias = layer.split(layer.mu.detach())
    assert torch.equal(weight, whole(layer, layer.mu.detach()))
    biases, place = [], 0
    for units, reads in layer.steps:
        place += units * reads
        biases.append(layer.mu[place : place + units])
        place += units
    assert place == len(layer.mu) == 8 * 11 + 3 * 13 + 2 * 13 + 17
    assert torch.equal(bias, torch.cat(biases))


def test_what_is_not_there_is_in_no_sum() -> None:
    """KL, SNR, numbers counted: those of the steps alone."""
    torch.manual_seed(0)
    net = grown()
    layer: Any = net.hidden[1]
    numbers = sum(units * reads for units, reads in layer.steps)
    assert layer.snr().shape == (numbers,)
    snr = whole(layer, layer.mu.abs() / (layer.rho / 2).exp())
    assert torch.equal(layer.snr().sort().values, snr[snr != 0].sort().values)
    parts = ((layer.rho - layer.prior_rho).exp() - 1 - (layer.rho - layer.prior_rho)).sum()
    moved = ((layer.mu - layer.prior_mu) ** 2 / layer.prior_rho.exp()).sum()
    torch.testing.assert_close(layer.kl(), (parts + moved) / 2)
    heads = sum(2 * h.shape[0] * (h.shape[1] + 1) for h in net.heads)
    first = 2 * 16 * 37
    assert sum(p.numel() for p in net.parameters()) == heads + first + 2 * (numbers + 14)


def test_pruning_gives_new_numbers_to_weights_that_are_there_and_no_bias() -> None:
    torch.manual_seed(0)
    net = grown()
    layer: Any = net.hidden[1]
    before, snr = layer.mu.detach().clone(), layer.snr()
    beta = snr.median().item()
    (_, delta) = core.prune(net, tiny.config(beta=beta))
    changed = layer.mu.detach() != before
    assert int(delta) == int((snr < beta).sum()) == int(changed.sum()) > 10
    biases = layer.places >= math.prod(layer.shape)
    assert not changed[biases].any()
    assert (layer.prior_rho[changed] == 0).all()  # task 1's prior


@pytest.mark.parametrize("sampling", ["weight", "local"])
@pytest.mark.parametrize("trunk", [False, True])
def test_old_answers_stay_bit_for_bit(trunk: bool, sampling: Any) -> None:
    """After any growth and any training, as long as the old weights are held."""
    torch.manual_seed(1)
    net = tiny.network(tiny.config(**NONE, sampling=sampling), trunk, heads=(3,))
    x, answers, held = tiny.inputs(net, 5), [], []
    for t, alpha in enumerate(([2, 3], [0, 2], [3, 1])):
        torch.manual_seed(9)
        answers.append(core.predict(net, x, t, 8).probabilities)
        held.append(copy.deepcopy(net))
        core.grow(net, alpha, zero=True, old_heads=False)
        net.add_head(2)
        part = core.Samples(tiny.inputs(net, 16), torch.randint(2, (16,)), t + 1)
        posterior = fast.FlatPosterior(net, [t + 1])
        optimizer = core.adam(posterior, 0.05, 0.05)
        posterior.new_round(5, 16)
        for _ in range(5):
            posterior.gradients([part], 0.01)
            optimizer.step()
        hold(net, held[-1])
        for j, said in enumerate(answers):
            torch.manual_seed(9)
            assert torch.equal(core.predict(net, x, j, 8).probabilities, said)
    assert not torch.equal(core.predict(net, x, 3, 8).probabilities[:, :2], answers[1])


@torch.no_grad()
def hold(net: core.ProgressiveBNN, old: core.ProgressiveBNN) -> None:
    """Put the old weights back: of the first layer and trunk rows, of a staircase the first."""
    for now, then in zip([*net.trunk, *net.hidden], [*old.trunk, *old.hidden], strict=True):
        for name in ("mu", "rho"):
            if isinstance(now, core.BayesStairs):
                getattr(now, name)[: len(then.mu)] = getattr(then, name)
                continue
            pairs = zip(now.split(getattr(now, name)), then.split(getattr(then, name)), strict=True)
            for new, kept in pairs:
                new[: len(kept)] = kept


@pytest.mark.parametrize("sampling", ["weight", "local"])
@pytest.mark.parametrize("trunk", [False, True])
def test_the_fast_path_is_equal_to_autograd_on_stairs(trunk: bool, sampling: Any) -> None:
    """For the newest head and an old one, one with stored answers to learn."""
    torch.manual_seed(0)
    net = grown(trunk=trunk, sampling=sampling)
    parts = [test_training.samples(net, 4, 5), test_training.samples(net, 0, 4)]
    test_training.check_gradients(net, [4, 0], parts, 0.02)
    told = torch.rand(4, 3).softmax(1)
    parts[1] = parts[1]._replace(answers=told)
    test_training.check_gradients(net, [4, 0], parts, 0.02)


def test_a_network_of_stairs_is_kept_whole(tmp_path: Any) -> None:
    net = grown()
    net.save(tmp_path / "net", {})
    again: Any = core.load(tmp_path / "net")
    assert tiny.same(tiny.snapshot(net), tiny.snapshot(again))
    assert [layer.form() for layer in again.hidden] == [layer.form() for layer in net.hidden]
    x = tiny.inputs(net, 3)
    assert torch.equal(net(x, 0, core.by_means), again(x, 0, core.by_means))


def test_a_learner_s_old_heads_read_what_was_there() -> None:
    config = tiny.config(**NONE, coreset=0, replay=False, gamma=0.9, hidden=(6, 5))
    run = runner.Run(runner.make("rcl-cpb", tiny.scenario(heads="multi"), config))
    run.finish("rcl-cpb")
    net: Any = run.method.net
    widths = [head.shape[1] for head in net.heads]
    assert widths[0] == 5 and widths == sorted(widths) and widths[-1] == net.sizes()[-1] > 5


def test_a_single_head_reads_new_neurons_from_zero() -> None:
    """Its old classes must be told from new ones: what it reads anew begins at mean 0."""
    config = tiny.config(**NONE, gamma=0.9, hidden=(6, 5), reinit_head=False)
    learner = core.Learner(tiny.scenario(), config)
    run = runner.Run(learner)
    next(iter(run))
    data = learner.store(1, core.samples(learner.scenario, 1))
    learner.begin(1, data)
    head: Any = learner.net.heads[0]
    weight, _ = head.split(head.mu.detach())
    assert head.shape == (4, learner.net.sizes()[-1]) and head.shape[1] > 5
    assert (weight[:2, 5:] == 0).all()
