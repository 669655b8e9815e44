"""iCaRL: herding against its definition, its loss and its answers by hand."""

from __future__ import annotations

import field
import pytest
import torch
import torch.nn.functional as F

from rclcpb.method import samples, seeded
from rclcpb.methods.icarl import herd


def test_herding_by_brute_force() -> None:
    features = F.normalize(torch.randn(30, 5).double())
    chosen: list[int] = []
    for _ in range(8):
        rest = [i for i in range(30) if i not in chosen]
        gaps = [(features.mean(0) - features[[*chosen, i]].mean(0)).norm() for i in rest]
        chosen.append(rest[int(torch.stack(gaps).argmin())])
    assert herd(features, 8) == chosen


def test_herding_takes_no_image_twice() -> None:
    assert sorted(herd(torch.ones(5, 3), 9)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("memory", [5, 6])
def test_exemplars_are_shared_out_among_the_classes(memory: int) -> None:
    method = field.learn("icarl", "single", memory=memory)
    counts = method.memory().y.bincount().tolist()
    assert method.stored() == 3 * memory
    assert counts == [memory // 2, memory - memory // 2] * 3


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_the_loss_by_hand(heads: str) -> None:
    method = field.learn("icarl", heads, tasks=2, distillation=0.5)
    old = [p.clone() for p in method.net.parameters()]
    field.begin(method, 2)
    with torch.no_grad():
        for p in method.net.parameters():
            p.add_(0.1 * torch.randn_like(p))  # a network on its way
    batch, memory = field.first_batch(method, 2), method.memory()
    with seeded("draw"):
        stored = memory.at(method.draw())
    total, count = torch.zeros(()), 0
    for part in (batch, stored):
        count += len(part.y)
        for x, y, task in zip(*part, strict=True):
            hidden = F.relu(F.linear(F.relu(F.linear(x, *old[:2])), *old[2:4]))
            targets = F.linear(hidden, *old[4:]).sigmoid()  # the old network's, four outputs
            p = method.net(x[None])[0].sigmoid()
            total = total + 0.5 * F.binary_cross_entropy(p[:4], targets, reduction="sum")
            if heads == "single" or task == 2:
                is_class = F.one_hot(y, 6).float()[4:]
                total = total + F.binary_cross_entropy(p[4:], is_class, reduction="sum")
    by_hand = total.item() / count
    with seeded("draw"):
        assert method.loss(2, batch).item() == pytest.approx(by_hand, rel=1e-4)


def test_the_answer_is_the_nearest_mean() -> None:
    method = field.learn("icarl", "single")
    memory, x = method.memory(), samples(method.scenario, 1, "test").x
    features = F.normalize(method.net.features(memory.x))
    means = torch.stack([features[memory.y == c].mean(0) for c in range(6)])
    nearest = torch.cdist(F.normalize(method.net.features(x)), F.normalize(means)).argmin(1)
    answers = method.answer(1, x)
    assert torch.equal(answers.argmax(1), nearest)
    assert torch.allclose(answers.sum(1), torch.ones(len(x)))


def test_before_any_exemplar_all_classes_are_alike() -> None:
    method = field.make("icarl", "single")
    data = field.begin(method, 0)
    assert method.answer(0, data.x).eq(0.5).all()
