"""GEM's dual against brute force and a general solver; its steps against its promise."""

from __future__ import annotations

import itertools

import field
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from rclcpb.methods.gem import dual


def problem(tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([tasks, seed])
    return rng.normal(size=(tasks, 25)), rng.normal(size=25)


def objective(v: np.ndarray, gradients: np.ndarray, g: np.ndarray) -> float:
    return float(0.5 * np.sum((gradients.T @ v + g) ** 2))


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_the_dual_by_brute_force(tasks: int, margin: float) -> None:
    """Some variables at their bound, the others solved for: the best of all such points."""
    for seed in range(5):
        gradients, g = problem(tasks, seed)
        best = np.full(tasks, margin)
        for free in itertools.product([False, True], repeat=tasks):
            v, some = np.full(tasks, margin), np.array(free)
            if some.any():
                rest = g + gradients[~some].T @ v[~some]
                v[some] = np.linalg.lstsq(gradients[some].T, -rest, rcond=None)[0]
            if (v >= margin).all() and objective(v, gradients, g) < objective(best, gradients, g):
                best = v
        assert dual(gradients, g, margin) == pytest.approx(best, abs=1e-6)


def test_nineteen_variables_against_a_general_solver() -> None:
    gradients, g = problem(19, 0)
    bounds = [(0.5, None)] * 19

    def slope(v: np.ndarray) -> np.ndarray:
        return gradients @ (gradients.T @ v + g)

    def value(v: np.ndarray) -> float:
        return objective(v, gradients, g)

    found = minimize(value, np.ones(19), jac=slope, bounds=bounds, tol=1e-14)
    assert value(dual(gradients, g, 0.5)) == pytest.approx(found.fun, rel=1e-6)


def test_equal_gradients_are_no_trouble() -> None:
    gradients, g = problem(1, 0)
    v = dual(np.repeat(gradients, 3, 0), -3 * gradients[0] + g, 0.0)
    assert np.isfinite(v).all() and (v >= 0).all()


def test_a_step_raises_no_old_tasks_loss() -> None:
    method = field.learn("gem", "single", tasks=2, margin=0.0)
    field.begin(method, 2)
    method.cross_entropy(field.first_batch(method, 2)).backward()
    rows = torch.stack([method.old_gradient(j) for j in range(2)])

    def gradient() -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in method.net.parameters()])

    before = rows @ gradient()
    assert (before < 0).any()  # otherwise the case shows nothing
    method.change_gradients(2)
    assert (rows @ gradient() >= -1e-5 * rows.norm(dim=1) * gradient().norm()).all()
    after = gradient()
    method.change_gradients(2)
    assert torch.allclose(gradient(), after, atol=1e-5)  # a projection
