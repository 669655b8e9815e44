"""Progressive networks: what is old stays as it was, what is new reads it."""

from __future__ import annotations

import field
import pytest
import tiny
import torch
import torch.nn.functional as F

from rclcpb.files import RclCpbError
from rclcpb.method import samples
from rclcpb.methods.pnn import PNN
from rclcpb.runner import Run


def test_old_answers_stay_bit_for_bit() -> None:
    method, kept = field.make("pnn"), {}
    tests = [samples(method.scenario, j, "test").x for j in range(3)]

    def watch(run: Run) -> None:
        t = len(run.stages)
        assert [method.unchanged(j) for j in range(3)] == [j < t for j in range(3)]
        for j in range(t):
            answers = method.net(tests[j], j).detach()
            assert torch.equal(answers, kept.setdefault(j, answers))

    field.accuracies(method, field.Watch(watch))
    assert set(kept) == {0, 1}


def test_a_column_reads_all_before_it() -> None:
    method = field.learn("pnn", tasks=2)
    x = torch.rand(5, 36)
    (a1, a2, _), (b1, b2, head) = method.net.columns
    a, b = F.relu(a1(x)), F.relu(b1(x))
    a, b = F.relu(a2(a)), F.relu(b2(torch.cat([a, b], 1)))
    assert torch.equal(method.net(x, 1), head(torch.cat([a, b], 1)))


def test_its_size() -> None:
    method = field.learn("pnn", tasks=3)
    column = sum(36 * 10 + 10 + t * 10 * 8 + 8 + t * 8 * 2 + 2 for t in (1, 2, 3))
    assert method.parameters() == column and method.notes()["hidden"] == [30, 24]


def test_one_head_cannot_be_had() -> None:
    with pytest.raises(RclCpbError, match="needs to be told the task"):
        PNN(tiny.scenario(heads="single"), field.settings())
