"""What all other methods share: settings, network, the seam, replay."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import field
import pytest
import tiny
import torch
import torch.nn.functional as F
from field import METHODS, PAIRED

from rclcpb.files import RclCpbError
from rclcpb.method import samples, seeded
from rclcpb.methods.network import PlainConfig, PlainNet
from rclcpb.runner import Run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": ()}, "must be above 0"),
        ({"hidden": (8, 0)}, "must be above 0"),
        ({"epochs": 0}, "epochs=0: must be above 0"),
        ({"lr": float("nan")}, "lr=nan: must be a finite number"),
        ({"strength": -1.0}, "strength=-1.0: must be 0 or more"),
        ({"memory": -1}, "memory=-1"),
        ({"mask": "new"}, "choose from all, own"),
        ({"keep": 1.5}, "at most 1"),
    ],
)
def test_settings_say_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RclCpbError, match=message):
        PlainConfig(**changes)


def test_settings_survive_a_record() -> None:
    config = field.settings(hidden=7, mask="own")
    assert PlainConfig.from_json(config.as_json()) == config
    with pytest.raises(RclCpbError, match="colour"):
        PlainConfig.from_json({"colour": "blue"})


@pytest.mark.parametrize("name", ["er", "der++", "gem", "icarl"])
def test_a_method_of_stored_images_wants_some(name: str) -> None:
    with pytest.raises(RclCpbError, match="memory above 0"):
        field.make(name, memory=0)
    with pytest.raises(RclCpbError, match="has only 48 images"):
        field.make(name, memory=48)


def test_a_wider_output_layer_keeps_its_old_rows() -> None:
    net = PlainNet((1, 6, 6), (10, 8), False, 3)
    before, x = tiny.snapshot(net), torch.randn(5, 36)
    old = net(x)
    net.widen(5)
    assert torch.equal(net.output.weight[:3], before["output.weight"])
    assert torch.allclose(net(x)[:, :3], old) and net(x).shape == (5, 5)


def test_the_trunk_has_the_shapes_of_the_bayesian_one() -> None:
    plain, bayesian = PlainNet((3, 8, 8), (10, 8), True, 3), tiny.network(trunk=True, heads=(3,))
    means = [layer.split(layer.mu)[0].shape for layer in tiny.layers(bayesian)]
    shapes = [p.shape for name, p in plain.named_parameters() if "weight" in name]
    assert sorted(shapes) == sorted(means)
    wide = PlainNet((1, 20, 20), (300,), False, 2).hidden[0].weight
    assert wide.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns(name: str, global_rng: None) -> None:
    accuracy = field.accuracies(field.make(name, hidden=(24, 16), epochs=12, strength=3.0))
    assert min(accuracy[t][t] for t in range(3)) > 0.9
    assert name == "finetune" or min(accuracy[-1]) > 0.9


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_images_with_a_trunk(name: str) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], "multi", trunk=True, n=12)
    method = METHODS[name](scenario, field.settings(epochs=1))
    field.accuracies(method)
    p = method.answer(0, samples(scenario, 0, "test").x)
    assert p.shape == (12, 2) and torch.allclose(p.sum(1), torch.ones(12))


def test_one_head_is_forgotten_without_a_defence_and_not_in_the_union() -> None:
    floor = field.accuracies(field.make("finetune", "single", epochs=12))[-1]
    ceiling = field.accuracies(field.make("joint", "single", epochs=12))[-1]
    assert max(floor[:2]) < 0.5 and min(ceiling) > 0.9


@pytest.mark.parametrize(("name", "heads"), PAIRED)
def test_a_stopped_run_goes_on_bit_for_bit(name: str, heads: str, global_rng: None) -> None:
    """Stopped after every epoch, and between any two tasks."""
    whole, moments = field.make(name, heads), []

    def look(run: Run) -> None:
        stages, stage = copy.deepcopy((run.stages, run.stage))
        moments.append((stages, stage, run.method.state()))

    scores = field.accuracies(whole, field.Watch(look, tasks=True))
    assert len(moments) == 9
    for stages, stage, state in moments:
        assert all(isinstance(v, (int, torch.Tensor)) for v in state.values())
        resumed = Run(field.make(name, heads))
        resumed.stages, resumed.stage = stages, stage
        resumed.method.load(state)
        for _ in resumed:
            pass
        assert [s.accuracy for s in resumed.stages] == scores
        assert tiny.same(tensors(resumed.method.state()), tensors(whole.state()))


def tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A state to compare: a NaN is not equal to itself."""
    return {k: torch.as_tensor(v).nan_to_num(9e9) for k, v in state.items()}


@pytest.mark.parametrize(("name", "heads"), PAIRED)
def test_a_method_becomes_what_a_state_was_taken_of(name: str, heads: str) -> None:
    """Also a smaller one, as the runner needs where a task is interrupted."""
    method = field.make(name, heads)
    states = [method.state()]
    for _ in Run(method):
        states.append(method.state())
    for state in reversed(states):
        method.load(state)
        assert tiny.same(tensors(method.state()), tensors(state))


@pytest.mark.parametrize(("name", "heads"), PAIRED)
def test_later_tasks_are_not_looked_at(name: str, heads: str) -> None:
    long, short = (
        METHODS[name](tiny.scenario(pairs, heads), field.settings(), 3)
        for pairs in (tiny.PAIRS, tiny.PAIRS[:2])
    )
    before, _ = (stage.accuracy for stage in itertools.islice(Run(long), 2))
    assert field.accuracies(short)[0] == before and tiny.same(
        tensors(short.state()), tensors(long.state())
    )


def test_the_masks() -> None:
    """all: an image may be of any class; own: of its task's; a head a task: its head's."""
    method = field.make("finetune", "single")
    for t in range(2):
        field.begin(method, t)
    batch, method.net = field.first_batch(method, 1), method.net.double()
    batch = batch._replace(x=batch.x.double())
    logits = method.net(batch.x)
    assert method.cross_entropy(batch).item() == pytest.approx(
        F.cross_entropy(logits, batch.y).item()
    )
    own = F.cross_entropy(logits[:, 2:4], batch.y - 2).item()
    assert method.cross_entropy(batch, masked=True).item() == pytest.approx(own)
    multi = field.make("finetune", "multi")
    multi.task = 1
    assert multi.visible(False).int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


def test_stored_images_are_the_tasks_own_equally_many_a_class() -> None:
    method = field.learn("er", "single")
    memory = method.memory()
    assert memory.y.bincount().tolist() == [3] * 6 and method.stored() == 18
    for j in range(3):
        x = samples(method.scenario, j, "train").x
        mine = memory.x[memory.task == j]
        assert all((x == image).all(1).any() for image in mine)


def test_er_adds_the_loss_of_stored_images() -> None:
    method = field.learn("er", tasks=2, beta=0.7)
    field.begin(method, 2)
    batch = field.first_batch(method, 2)
    with seeded("draw"):
        stored = method.memory().at(method.draw())
    by_hand = method.cross_entropy(batch) + 0.7 * method.cross_entropy(stored)
    with seeded("draw"):
        assert method.loss(2, batch).item() == by_hand.item()


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_der_without_alpha_is_er(heads: str) -> None:
    er, der = field.learn("er", heads), field.learn("der++", heads, alpha=0.0)
    assert tiny.same(dict(er.net.state_dict()), dict(der.net.state_dict()))


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_der_holds_the_logits_an_image_had(heads: str) -> None:
    method = field.learn("der++", heads, tasks=2, alpha=0.5, final_steps=0)
    field.begin(method, 2)
    batch, memory = field.first_batch(method, 2), method.memory()
    with seeded("draw"):
        labels, logits = method.draw(), method.draw()
    gaps = []
    for i in logits.tolist():
        j = int(memory.task[i])
        known = slice(2 * j, 2 * j + 2) if heads == "multi" else slice(0, 2 * j + 2)
        kept = method.kept[f"logits.{j}"][i - 6 * j]
        gaps.append(method.net(memory.x[i : i + 1])[0, known] - kept[known])
    by_hand = method.cross_entropy(batch) + method.cross_entropy(memory.at(labels))
    by_hand += 0.5 * torch.cat(gaps).square().mean()
    with seeded("draw"):
        assert method.loss(2, batch).item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_a_final_fit_mends_what_training_broke() -> None:
    changes = {"epochs": 8, "strength": 0.0, "beta": 0.0}
    broken = field.accuracies(field.make("rwalk", "single", **changes))[-1]
    steps = {"final_steps": 60, "memory": 12}
    mended = field.accuracies(
        field.make("rwalk", "single", epochs=8, strength=0.0, beta=0.0, **steps)
    )[-1]
    assert sum(mended) > sum(broken) + 0.5


def test_a_loss_that_is_not_finite_is_said() -> None:
    with pytest.raises(RclCpbError, match="task 1, epoch 1: the loss is not finite"):
        field.accuracies(field.make("finetune", lr=1e30, epochs=1))
