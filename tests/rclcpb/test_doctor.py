"""The doctor: each sign of failure is brought about on purpose, and a sound run shows none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import one_line

from rclcpb import doctor, scenarios
from rclcpb.estimator import OWN_DATA
from rclcpb.files import RclCpbError
from rclcpb.images import Images
from rclcpb.records import RESULTS, Record, load_record, load_records, save_record
from rclcpb.runner import learn
from rclcpb.scenarios import Scenario

SOUND = replace(OWN_DATA, hidden=(32, 32), coreset=20, replay_steps=100, lr_rho=0.05)
OVERFIT: dict[str, Any] = {"coreset": 4, "replay_steps": 1500, "replay_lr": 0.01, "replay_mix": 0}
FAILING: list[tuple[str, str, dict[str, Any]]] = [
    ("KL too heavy", "single", {"kl_weight": 30.0, "epochs": 60, "replay": False}),
    ("widths that do not move", "single", {"lr_rho": 1e-4}),
    ("replay that overfits", "single", OVERFIT),
    (
        "a head that drowns old classes",
        "single",
        {"replay": False, "replay_mix": 0, "restore_head": False, "reinit_head": False},
    ),
]


@pytest.fixture(scope="module")
def few(digits: Images) -> Callable[[Any], Scenario]:
    """Three pairs of digits, 160 images a task."""
    order = np.random.default_rng(0).permutation(len(digits.y_train))
    x, y = digits.x_train[order], digits.y_train[order]

    def made(heads: Any) -> Scenario:
        tasks = []
        for pair in ((0, 1), (2, 3), (4, 5)):
            mine, test = np.isin(y, pair), np.isin(digits.y_test, pair)
            tasks.append((x[mine][:160], y[mine][:160], digits.x_test[test], digits.y_test[test]))
        return scenarios.from_arrays(tasks, heads)

    return made


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_sound_run_shows_no_sign(heads: str, few: Callable) -> None:
    assert doctor.signs(learn(few(heads), SOUND, 1)) == []


@pytest.mark.parametrize(("name", "heads", "changes"), FAILING)
def test_a_failure_brought_about_on_purpose_shows_its_sign_alone(
    name: str, heads: str, changes: dict, few: Callable
) -> None:
    (sign,) = doctor.signs(learn(few(heads), replace(SOUND, **changes), 1))
    assert sign.name == name and sign.seen and sign.do


def test_what_the_doctor_says_to_do_helps(few: Callable) -> None:
    name, heads, changes = FAILING[0]
    record = learn(few(heads), replace(SOUND, **(changes | {"kl_weight": 0.3})), 1)
    assert name not in [sign.name for sign in doctor.signs(record)]
    assert record.accuracy[0][0] > 0.9


@pytest.mark.parametrize("scenario", ["mh-smnist", "pmnist", "ta-smnist", "mh-cifar100"])
def test_the_recorded_runs_of_the_book_are_sound(scenario: str) -> None:
    for method in ("rcl-cpb", "rcl-cpb-plus", "vcl"):
        found = [doctor.signs(one) for one in load_records(RESULTS, scenario, method)]
        assert found and not any(found), (scenario, method)


def test_on_colour_with_one_head_the_widths_stand_still() -> None:
    """A fact of the recorded runs, which the book tells."""
    for record in load_records(RESULTS, "ta-cifar100", "rcl-cpb"):
        assert [sign.name for sign in doctor.signs(record)] == ["widths that do not move"]


def test_the_weights_of_task_1_are_counted_right(few: Callable) -> None:
    for heads in ("single", "multi"):
        record = learn(few(heads), replace(SOUND, epochs=1), 1)
        assert doctor.weights_of_task_1(record) == 785 * 32 + 33 * 32 + 33 * 2
        assert record.hidden[0] != record.hidden[-1]


def test_the_command_names_the_sign_and_what_to_do(
    few: Callable, command: Callable, tmp_path: Path
) -> None:
    record: Record = learn(few("single"), replace(SOUND, **FAILING[1][2]), 1)
    save_record(record, tmp_path / "run.json")
    code, out, _ = command("doctor", "run.json")
    (sign,) = doctor.signs(load_record(tmp_path / "run.json"))
    assert code == 0 and sign.name in out and sign.do in out
    code, out, _ = command("doctor", str(RESULTS / "mh-smnist" / "rcl-cpb-seed0.json"))
    assert code == 0 and "none of the known signs" in out
    (tmp_path / "bad.json").write_text("{}")
    code, _, err = command("doctor", "bad.json")
    assert code == 2 and one_line(err)


@pytest.mark.parametrize("name", ["rho_init", "prior_var", "replay_steps"])
def test_settings_that_are_none_are_one_sentence(name: str) -> None:
    """They are the one part of a record that is not examined where it is read."""
    record = load_records(RESULTS, "mh-smnist", "rcl-cpb")[0]
    with pytest.raises(RclCpbError, match="of another version"):
        doctor.signs(replace(record, config=record.config | {name: "x"}, accuracy=[[0.5]] * 5))
