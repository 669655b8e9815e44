"""The attack: what it counts, and a tiny run whose files are on a real disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny
from outcomes import Tally
from running import KINDS, Kind

from rclcpb import jobs
from rclcpb.checkpoint import Checkpoint
from rclcpb.jobs import Job


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Told of each try; it stands in the table at the end, and fails what may not be."""
    counts = Tally()
    yield counts
    counted = json.dumps([request.node.name.removeprefix("test_"), dict(counts)])
    request.node.user_properties.append(("attack", counted))
    assert not counts.notes, "\n".join(counts.notes[:20])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Makes jobs of a tiny kind of run, which save themselves after every round."""

    def made(kind: Kind = KINDS["one head"], name: str = "run", **changes: Any) -> Job:
        scenario = tiny.scenario(**kind.scenario)
        monkeypatch.setattr(jobs, "make_scenario", lambda *_: scenario)
        monkeypatch.setattr(jobs, "Checkpoint", partial(Checkpoint, every=0.0))
        config = tiny.config(**(kind.config | changes))
        return Job(scenario.name, kind.method, 5, config, tmp_path / name / "run.json", keep=True)

    return made
