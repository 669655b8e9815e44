"""The fast path against autograd on the plain formulas, its noise, and distortions."""

from __future__ import annotations

import dataclasses
import math
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import rclcpb_core as core
import rclcpb_data

FAULTS = """
import resource, sys, torch
sys.path.insert(0, sys.argv[1])
from rclcpb_fast import keep_freed_memory
if sys.argv[2] == "kept":
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for mib in range(1, 31):  # glibc by itself asks for new pages for each larger one
    torch.ones(mib * 2**18)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc only")
def test_a_step_s_buffers_come_without_new_pages() -> None:
    root = str(Path(core.__file__).parent)
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, root, how],
                text=True,
                capture_output=True,
                check=True,
            ).stdout
        )
        for how in ("kept", "as ever")
    ]
    assert faults[0] < 60_000 < 100_000 < faults[1]  # a MiB is 256 pages


# ------------------------------------------------------- gradients of Eq. 8, fast path


def recording(flat: core.FlatPosterior) -> list[Tensor]:
    """The noise that the coming steps take, in the order in which they take it."""
    taken: list[Tensor] = []
    original = flat.noise

    def noise(shape: Sequence[int]) -> Tensor:
        taken.append(original(shape).clone())
        return taken[-1]

    flat.noise = noise  # type: ignore[method-assign]
    return taken


def replaying(taken: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """A torch.randn_like that gives out these numbers again."""
    numbers, place = torch.cat([t.flatten() for t in taken]), [0]

    def randn_like(like: Tensor) -> Tensor:
        start, place[0] = place[0], place[0] + like.numel()
        return numbers[start : place[0]].view(like.shape)

    return randn_like


def plain_loss(
    net: core.ProgressiveBNN, parts: Sequence[core.Samples], heads: Sequence[int], kl_weight: float
) -> tuple[Tensor, Tensor]:
    """Eq. 8 with the layers' plain forward passes and autograd: the oracle."""
    x = torch.cat([part.x for part in parts])
    features = net.features(x, lambda i, layer, x: layer(x))
    pieces = features.split([len(part.y) for part in parts])
    logits = [net.heads[part.head](piece) for part, piece in zip(parts, pieces, strict=True)]
    losses = [
        F.cross_entropy(out, part.y, reduction="sum")
        for out, part in zip(logits, parts, strict=True)
    ]
    nll = torch.stack(losses).sum() / len(x)
    path = [*net.trunk, *net.hidden, *(net.heads[h] for h in heads)]
    return nll, nll + kl_weight * torch.stack([layer.kl() for layer in path]).sum()


def samples(net: core.ProgressiveBNN, head: int, n: int = 7) -> core.Samples:
    classes = net.heads[head].shape[0]
    return core.Samples(tiny.inputs(net, n), torch.randint(classes, (n,)), head)


def check_gradients(
    net: core.ProgressiveBNN, heads: Sequence[int], parts: Sequence[core.Samples], kl_weight: float
) -> None:
    flat = core.FlatPosterior(net, heads)
    batch = sum(len(p.y) for p in parts)
    flat.new_pool(3, batch)
    flat.loss([samples(net, heads[-1], batch)], 0.3)  # an earlier step leaves no trace
    taken = recording(flat)
    nll = flat.loss(parts, kl_weight)
    with patch("torch.randn_like", replaying(taken)):
        expected_nll, loss = plain_loss(net, parts, heads, kl_weight)
    torch.testing.assert_close(nll, expected_nll.detach())
    for layer in flat.layers:
        layer.mu.grad = layer.rho.grad = None
    loss.backward()
    for name in ("mu", "rho"):
        ours = getattr(flat, name).grad
        zeros = [torch.zeros_like(layer.mu) for layer in flat.layers]
        got = [getattr(layer, name).grad for layer in flat.layers]
        plain = torch.cat([z if g is None else g for g, z in zip(got, zeros, strict=True)])
        assert plain.abs().max() > 1e-3
        assert (ours - plain).abs().max() < 1e-5 * plain.abs().max()


CASES = [
    (trunk, sampling, kl)
    for trunk in (False, True)
    for sampling in ("weight", "local")
    for kl in (0.0, 0.01)
]


@pytest.mark.parametrize(("trunk", "sampling", "kl_weight"), CASES)
def test_gradients_equal_autograd(trunk: bool, sampling: Any, kl_weight: float) -> None:
    net = tiny.network(tiny.config(sampling=sampling), trunk)
    check_gradients(net, [1], [samples(net, 1)], kl_weight)


@pytest.mark.parametrize(("trunk", "sampling", "kl_weight"), CASES)
def test_gradients_with_samples_of_two_heads(trunk: bool, sampling: Any, kl_weight: float) -> None:
    """A batch of two tasks; the third head has no sample in it and gets the KL only."""
    net = tiny.network(tiny.config(sampling=sampling), trunk, heads=(3, 2, 4))
    parts = [samples(net, 1, 5), samples(net, 0, 4)]
    check_gradients(net, [1, 0, 2], parts, kl_weight)


def test_gradients_of_one_hidden_layer_and_of_three() -> None:
    for hidden in ((9,), (9, 7, 5)):
        net = tiny.network(tiny.config(hidden=hidden, sampling="local"))
        check_gradients(net, [0], [samples(net, 0)], 0.02)


def test_layers_are_views_of_the_flat_vectors() -> None:
    net = tiny.network()
    flat = core.FlatPosterior(net, [1])
    optimizer = flat.optimizer(0.01, 0.01)
    before = tiny.snapshot(net)
    flat.new_pool(1, 7)
    flat.loss([samples(net, 1)], 0.01)
    optimizer.step()
    after = net.state_dict()
    for name in ("hidden.0", "hidden.1", "heads.1"):
        assert (after[f"{name}.mu"] != before[f"{name}.mu"]).any()
        assert (after[f"{name}.rho"] != before[f"{name}.rho"]).any()
    joined = torch.cat([layer.mu for layer in (*net.hidden, net.heads[1])])
    assert torch.equal(joined, flat.mu)
    torch.testing.assert_close(flat.kl(), sum(la.kl() for la in flat.layers).detach())


def test_training_a_head_leaves_the_others_bit_for_bit() -> None:
    net = tiny.network(tiny.config(sampling="local"))
    before, data = tiny.snapshot(net), samples(net, 1, 20)
    flat = core.FlatPosterior(net, [1])
    phase = core.Phase.training(net.config, 20)
    core.train_round(flat, flat.optimizer(0.1, 0.1), data, phase, 5, (1, 6, 6))
    after = net.state_dict()
    for name, value in before.items():
        changed = not torch.equal(value, after[name])
        trained = name.split(".")[-1] in ("mu", "rho") and "heads.0" not in name
        assert changed == trained, name


def test_separate_learning_rates_apply() -> None:
    """Adam's first step is its rate, whatever the gradient's size."""
    net = tiny.network()
    flat = core.FlatPosterior(net, [0])
    mu, rho = flat.mu.detach().clone(), flat.rho.detach().clone()
    phase = core.Phase.training(net.config, 7)
    step = flat.optimizer(0.03, 0.004)
    core.train_round(flat, step, samples(net, 0), phase, 1, (1, 6, 6))
    assert (flat.mu - mu).abs().median().item() == pytest.approx(0.03, rel=1e-3)
    assert (flat.rho - rho).abs().median().item() == pytest.approx(0.004, rel=1e-3)


def test_phases_carry_the_configs_numbers() -> None:
    config = tiny.config(
        epochs=4,
        batch_size=10,
        lr_mu=0.02,
        lr_rho=0.1,
        kl_weight=3.0,
        replay_steps=250,
        replay_lr=0.05,
        replay_kl=2.0,
        replay_batch=9,
        augment="shift",
        distort="affine",
    )
    train = core.Phase.training(config, 41)
    assert train.rounds == [5] * 4 and train.batch == 10  # ceil(41 / 10) an epoch
    assert (train.lr_mu, train.lr_rho) == (0.02, 0.1)
    assert train.kl_weight == pytest.approx(3 / 41) and train.augment == "shift"
    replay = core.Phase.replaying(config, 12)
    assert sum(replay.rounds) == 250 and replay.batch == 9
    assert replay.lr_mu == 0.05 and replay.lr_rho == pytest.approx(0.25)
    assert replay.kl_weight == pytest.approx(2 / 12) and replay.augment == "affine"
    passes = core.Phase.replaying(dataclasses.replace(config, replay_epochs=3), 19)
    assert passes.rounds == [3] * 3 and passes.lr_mu == 0.05  # ceil(19 / 9) a pass


def test_the_prior_pulls_the_posterior() -> None:
    """With the KL alone to speak of, a fit ends at the prior."""
    net = tiny.network(tiny.config(batch_size=50))
    flat, data = core.FlatPosterior(net, [0]), samples(net, 0, 50)
    phase = core.Phase.training(net.config, 50)._replace(kl_weight=1e4)
    before = flat.kl()
    core.train_round(flat, flat.optimizer(0.05, 0.05), data, phase, 400, (1, 6, 6))
    assert flat.kl() < 0.01 * before


# ------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_a_steps_noise_repeats_no_number(sampling: Any) -> None:
    net = tiny.network(tiny.config(sampling=sampling), trunk=True)
    flat = core.FlatPosterior(net, [0])
    flat.new_pool(20, 7)
    flat.pool = torch.arange(len(flat.pool), dtype=torch.float)  # each place its number
    taken, firsts = recording(flat), set()
    for _ in range(20):
        taken.clear()
        flat.loss([samples(net, 0)], 0.0)
        numbers = torch.cat([t.flatten() for t in taken])
        drawn = (
            len(flat.mu)
            if sampling == "weight"
            else sum(len(layer.mu) for layer in net.trunk) + 7 * (10 + 8 + 3)
        )
        assert len(numbers) == drawn == len(numbers.unique())
        firsts.add(numbers[0].item())
    assert len(firsts) > 10  # steps begin at different places


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_noise_is_standard_normal(sampling: Any) -> None:
    net = tiny.network(tiny.config(sampling=sampling))
    flat, means, squares = core.FlatPosterior(net, [0]), [], []
    for _ in range(200):  # one step a pool: independent
        flat.new_pool(1, 7)
        taken = recording(flat)
        flat.loss([samples(net, 0)], 0.0)
        numbers = torch.cat([t.flatten() for t in taken])
        means.append(numbers.mean().item() * math.sqrt(len(numbers)))
        squares.append((numbers.square().mean().item() - 1) * math.sqrt(len(numbers) / 2))
    for scores in (means, squares):  # both are close to standard normal themselves
        assert abs(np.mean(scores)) < 5 / math.sqrt(200)
        assert np.std(scores) == pytest.approx(1, abs=5 / math.sqrt(400))


def test_every_round_draws_a_new_pool() -> None:
    net = tiny.network()
    flat, data = core.FlatPosterior(net, [0]), samples(net, 0)
    phase = core.Phase.training(net.config, 7)
    optimizer, pools = flat.optimizer(0.01, 0.01), []
    for _ in range(3):
        core.train_round(flat, optimizer, data, phase, 2, (1, 6, 6))
        pools.append(flat.pool.clone())
    assert not torch.isin(pools[0][:100], pools[1]).any()
    assert not torch.isin(pools[1][:100], pools[2]).any()


# ----------------------------------------------------------------------------- batches


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3))
def test_batches_cover_every_sample_once_an_epoch(n: int, size: int, epochs: int) -> None:
    steps = math.ceil(n / size)
    got = list(core.batches(n, size, epochs * steps, torch.device("cpu")))
    assert len(got) == epochs * steps and max(map(len, got)) <= size
    for e in range(epochs):
        epoch = torch.cat(got[e * steps : (e + 1) * steps])
        assert epoch.sort().values.tolist() == list(range(n))


def test_batches_shuffle_anew() -> None:
    one, other = core.batches(50, 50, 2, torch.device("cpu"))
    assert one.tolist() != other.tolist() and one.tolist() != list(range(50))


def test_mixed_batches_hold_stored_images() -> None:
    """With `mixed`, each step's batch has that many images of a stored set."""
    net = tiny.network()
    data, old = samples(net, 0, 20), samples(net, 0, 6)
    flat, seen = core.FlatPosterior(net, [0]), []
    original = flat.loss
    flat.loss = lambda parts, w: (seen.append(parts), original(parts, w))[1]  # type: ignore[method-assign]
    phase = core.Phase.training(net.config, 20)
    core.train_round(flat, flat.optimizer(0.01, 0.01), data, phase, 4, (1, 6, 6), [old], 5)
    for (part,) in seen:
        from_old = (part.x[:, None] == old.x[None]).all(2).any(1)
        assert from_old.sum() == 5
        place = (part.x[from_old][:, None] == old.x[None]).all(2).int().argmax(1)
        assert torch.equal(part.y[from_old], old.y[place])


# ------------------------------------------------------------------- numbers that blow


@pytest.mark.parametrize("changes", [{"lr_mu": 1e30}, {"rho_init": 300.0}])
def test_a_loss_that_is_not_finite_stops_with_task_and_cause(changes: dict) -> None:
    learner = core.Learner(tiny.scenario(), tiny.config(**changes))
    with pytest.raises(core.RclCpbError, match=r"^task 1, .*not finite.*lower lr_mu"):
        next(iter(learner))


# -------------------------------------------------------------------------- distortions


def shifted(image: Tensor, right: int, down: int) -> Tensor:
    """(C, H, W) moved by whole pixels, zeros coming in."""
    _, h, w = image.shape
    out = torch.zeros_like(image)
    rows, columns = slice(max(down, 0), h + min(down, 0)), slice(max(right, 0), w + min(right, 0))
    rows_in, columns_in = (
        slice(max(-down, 0), h + min(-down, 0)),
        slice(max(-right, 0), w + min(-right, 0)),
    )
    out[:, rows, columns] = image[:, rows_in, columns_in]
    return out


def find_shift(image: Tensor, moved: Tensor, reach: int) -> tuple[int, int] | None:
    span = range(-reach, reach + 1)
    for right, down in ((r, d) for r in span for d in span):
        if torch.allclose(shifted(image, right, down), moved, atol=1e-4):
            return right, down
    return None


def test_distortion_with_no_limits_is_the_identity(monkeypatch: Any) -> None:
    monkeypatch.setitem(core.DISTORTIONS, "still", core.Affine())
    x = torch.rand(10, 3, 7, 9)
    torch.testing.assert_close(core.distort(x, (3, 7, 9), "still"), x, atol=1e-5, rtol=0)


def test_whole_pixels_are_looked_up_where_the_grid_would_read_them() -> None:
    x, limit = torch.rand(40, 3, 6, 8), rclcpb_data.DISTORTIONS["crop-flip"]
    u = 2 * torch.rand(6, 40) - 1
    mirror, move = u[5].sign(), (4.5 * u[3:5]).round()
    read = rclcpb_data._bent(x, limit, u, mirror, move)
    looked_up = rclcpb_data._shifted(x, limit.pixels, mirror, move)
    torch.testing.assert_close(looked_up, read, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(5, 9), (28, 28)])
def test_the_bending_field_is_a_bicubic_interpolation(size: tuple[int, int]) -> None:
    field = torch.randn(3, 2, 4, 4)
    down, across = (rclcpb_data._bicubic(n, field.device) for n in size)
    whole = F.interpolate(field, size, mode="bicubic", align_corners=True)
    torch.testing.assert_close(down @ field @ across.t(), whole)


def test_a_batch_lies_in_memory_as_the_images_do() -> None:
    x = torch.rand(9, 8, 8, 3).permute(0, 3, 1, 2)
    index = torch.tensor([4, 0, 4])
    for kind in ("none", "crop-flip", "elastic"):
        batch = core.Samples(x, torch.arange(9)).take(index, (3, 8, 8), kind)
        assert batch.x.is_contiguous(memory_format=torch.channels_last)
        assert batch.y.tolist() == [4, 0, 4]
    assert torch.equal(core.rows(x, index), x[index])


def test_shift_moves_whole_pixels_and_reaches_everywhere() -> None:
    x = torch.rand(300, 81)
    moved = core.distort(x, (1, 9, 9), "shift")
    assert moved.shape == x.shape
    found = [find_shift(a.view(1, 9, 9), b.view(1, 9, 9), 2) for a, b in zip(x, moved, strict=True)]
    assert None not in found
    assert len(set(found)) == 25


def test_crop_flip_mirrors_half_of_the_images() -> None:
    x = torch.rand(120, 3, 10, 10)
    moved, flips = core.distort(x, (3, 10, 10), "crop-flip"), 0
    for image, result in zip(x, moved, strict=True):
        straight = find_shift(image, result, 4)
        mirrored = find_shift(image.flip(2), result, 4)
        assert (straight is None) != (mirrored is None)
        flips += mirrored is not None
    assert 35 < flips < 85  # 60 expected, deviation 5.5


def test_images_that_may_not_be_mirrored_are_moved_only() -> None:
    """A mirrored digit is another sign; the moves are those it would have had."""
    x = torch.rand(60, 3, 10, 10)
    digits = core.Samples(x, torch.zeros(60, dtype=torch.long), mirror=False)
    torch.manual_seed(0)
    moved = digits.take(torch.arange(60), (3, 10, 10), "crop-flip").x
    torch.manual_seed(0)
    free = core.distort(x, (3, 10, 10), "crop-flip")
    kept = 0
    for image, result, other in zip(x, moved, free, strict=True):
        assert find_shift(image, result, 4) is not None
        kept += result.equal(other)
    assert 10 < kept < 50


@pytest.mark.parametrize("kind", sorted(core.DISTORTIONS))
@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 8, 8)])
def test_distorted_images_keep_shape_range_and_label(kind: str, shape: tuple) -> None:
    flat = shape[0] == 1
    x = torch.rand(40, math.prod(shape)) if flat else torch.rand(40, *shape)
    data = core.Samples(x, torch.arange(40))
    out = data.take(torch.arange(39, -1, -1), shape, kind)
    assert out.x.shape == x.shape and out.y.tolist() == list(range(39, -1, -1))
    assert out.x.min() >= 0 and out.x.max() <= 1 + 1e-5
    assert (out.x - x.flip(0)).abs().flatten(1).max(1).values.median() > 0.1
    middle = out.x.view(40, *shape)[:, :, 3:-3, 3:-3]
    assert middle.mean() > 0.3  # it is still the image, not an empty one


def test_affine_moves_images_each_in_its_own_way() -> None:
    x = torch.rand(1, 144).expand(5, 144)
    moved = core.distort(x, (1, 12, 12), "affine")
    assert len({tuple(row.tolist()) for row in moved}) == 5


def test_colour_images_without_a_trunk_are_moved_channel_by_channel() -> None:
    """Inputs are laid out as distort reads them: channel, row, column."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (8, 7, 7, 3), dtype=np.uint8)
    y = np.arange(8) % 2
    scenario = core.from_arrays([(x, y, x, y)])
    flat = scenario.inputs(x, scenario.tasks[0], torch.device("cpu"))
    moved = core.distort(flat, scenario.image_shape(), "shift")
    for image, result in zip(x, moved, strict=True):
        image = torch.from_numpy(image).permute(2, 0, 1) / 255
        assert find_shift(image, result.view(3, 7, 7), 2) is not None


def test_shuffled_images_are_distorted_in_their_order_before_the_shuffle() -> None:
    x, pixels = torch.rand(20, 81), torch.randperm(81)
    data = core.Samples(x[:, pixels], torch.zeros(20, dtype=torch.long), 0, pixels)
    moved = data.take(torch.arange(20), (1, 9, 9), "shift").x
    back = torch.empty_like(moved)
    back[:, pixels] = moved
    for image, result in zip(x, back, strict=True):
        assert find_shift(image.view(1, 9, 9), result.view(1, 9, 9), 2) is not None
