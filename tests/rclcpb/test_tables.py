"""Tables: recorded runs beside the paper's numbers, known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import KINDS, one_line

import rclcpb_core as core
from rclcpb.files import RclCpbError
from rclcpb.records import Record, record_path, save_record
from rclcpb.tables import at_a_glance, best_others, format_table, paired, summary, table_rows

Recording = Callable[..., Record]


@pytest.fixture(scope="module")
def small() -> Record:
    return KINDS["one head"].run(epochs=1, replay_steps=1).finish("rcl-cpb")


@pytest.fixture
def recorded(tmp_path: Path, small: Record) -> Recording:
    """Writes a record with these numbers below tmp_path."""

    def write(method: str, seed: int, last: float, **changes: Any) -> Record:
        values = {
            "scenario": "ta-smnist",
            "method": method,
            "seed": seed,
            "hidden": [[10, 8]] * 3,
            "accuracy": [[1.0], [0.9, 0.9], [last, last, last]],
            "seconds": [30.0, 60.0, 90.0],
        }
        record = replace(small, **(values | changes))
        save_record(record, record_path(tmp_path, record.scenario, method, seed))
        return record

    return write


@pytest.fixture
def two_seeds(recorded: Recording) -> None:
    for seed, (ours, vcl) in enumerate([(0.80, 0.70), (0.82, 0.75)]):
        recorded("rcl-cpb", seed, ours)
        recorded("vcl", seed, vcl)


def test_table_of_recorded_runs(command: Any, tmp_path: Path, two_seeds: None) -> None:
    code, out, _ = command("table", "mnist", "--results", str(tmp_path))
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("ta-smnist ")]
    ours, vcl, paper, paper_vcl, *quoted = rows
    assert "rcl-cpb" in ours and "recorded" in ours and "81.00 ± 1.41" in ours
    # forgetting: task 1 fell from 1, task 2 from 0.9, to 0.8 (or 0.82): 15 and 13
    assert "14.0 ± 1.4" in ours and "[10, 8]" in ours and " 180 " in ours
    assert "vcl" in vcl and "72.50 ± 3.54" in vcl
    assert "paper" in paper and "83.8 ± 0.38" in paper and "[160, 128]" in paper
    assert "paper" in paper_vcl and "60.6 ± 4.41" in paper_vcl
    assert all("paper, from " in row for row in quoted)
    assert "rcl-cpb - vcl = +8.50 points, better in 2 of 2 seeds" in out


def test_table_without_records_shows_the_papers_rows(command: Any, tmp_path: Path) -> None:
    for group, expected in (("cifar100", "72.4"), ("sequence", "81.5")):
        code, out, _ = command("table", group, "--results", str(tmp_path))
        assert code == 0 and expected in out and "recorded" not in out
    code, out, _ = command("table", "mnist-5k", "--results", str(tmp_path))  # it has none
    assert code == 0 and out == f"no run of mnist-5k is in {tmp_path} yet.\n"


def test_a_table_of_a_folder_that_is_not_there_is_not_the_papers(command: Any) -> None:
    code, out, err = command("table", "mnist", "--results", "rnus")
    assert (
        code == 2 and not out and err == "error: rnus is not a folder: give the --out of a run.\n"
    )


def test_table_of_a_damaged_record(command: Any, tmp_path: Path) -> None:
    path = record_path(tmp_path, "ta-smnist", "vcl", 0)
    path.parent.mkdir()
    path.write_text('{"scenario": "ta-smnist"')
    code, _, err = command("table", "mnist", "--results", str(tmp_path))
    assert code == 2 and one_line(err) and str(path) in err


def test_seeds_are_compared_pair_by_pair(tmp_path: Path, recorded: Recording) -> None:
    for seed, (ours, vcl) in {0: (0.8, 0.7), 1: (0.7, 0.72), 2: (0.9, 0.7)}.items():
        recorded("rcl-cpb", seed, ours)
        recorded("vcl", seed, vcl)
    recorded("vcl", 3, 0.1)  # has no partner
    said = paired(tmp_path, "ta-smnist", "rcl-cpb", "vcl")
    # +10, -2, +20: mean 28/3, deviation 11.02, t = 1.467 with two degrees of freedom
    assert "+9.33 points, better in 2 of 3 seeds (paired t-test p = 0.28)" in said
    assert paired(tmp_path, "ta-smnist", "rcl-cpb", "rcl-cpb-A") == ""


def test_seeds_of_other_settings_are_not_averaged(tmp_path: Path, recorded: Recording) -> None:
    """A size may differ from seed to seed where another run's was taken: of what does not grow."""
    first = recorded("rcl-cpb", 0, 0.8)
    second = recorded("rcl-cpb", 1, 0.9, config=first.config | {"epochs": 7})
    with pytest.raises(RclCpbError, match=r"seeds 0 and 1 .* other settings \(epochs\)"):
        table_rows(tmp_path, ["ta-smnist"])
    with pytest.raises(RclCpbError, match="seed 1 is there 2 times"):
        summary([second, second])
    for grow, message in ((True, "hidden"), (False, "")):
        config = first.config | {"grow": grow}
        pair = [replace(first, config=config), replace(first, config=config | {"hidden": [9, 9]})]
        pair[1].seed = 1
        if message:
            with pytest.raises(RclCpbError, match=message):
                summary(pair)
        else:
            assert summary(pair)[10] == "2"


def test_a_row_of_an_older_version_says_so(
    tmp_path: Path, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded("rcl-cpb", 0, 0.8)
    assert table_rows(tmp_path, ["ta-smnist"])[0][2] == "recorded"
    monkeypatch.setattr(core, "VERSION", core.VERSION + 1)
    row = table_rows(tmp_path, ["ta-smnist"])[0]
    assert row[2] == f"recorded, version {core.VERSION - 1}"


def test_a_method_without_sizes_has_none_in_its_row(recorded: Recording) -> None:
    row = summary([recorded("other", 0, 0.5, hidden=[None] * 3)])
    assert row[3] == "50.00" and row[5] == row[6] == ""


def test_the_main_table_names_each_scenario_once(tmp_path: Path, two_seeds: None) -> None:
    def plain(text: str) -> list[str]:
        return text.replace("\u00a0", " ").replace("\u2011", "-").splitlines()

    lines = plain(at_a_glance(tmp_path))
    (ours,) = (line for line in lines if line.startswith("| split MNIST, one head"))
    assert ours.split(" | ")[1:5] == ["RCL-CPB", "81.00 ± 1.41", "10, 8", "2"]
    assert "83.8 ± 0.38" in ours and "160, 128" in ours
    assert any("not recorded yet" in line for line in lines)
    assert len(plain(at_a_glance(tmp_path, missing=False))) == 2 + 2


def test_the_main_table_ends_with_the_best_of_the_others(
    tmp_path: Path, recorded: Recording
) -> None:
    for method, last in {"er": 0.7, "ewc": 0.2, "gem": 0.6, "joint": 0.9, "icarl": 0.8}.items():
        recorded(method, 0, last)
    assert best_others(tmp_path, "ta-smnist") == ["icarl", "er", "gem"]
    lines = at_a_glance(tmp_path, missing=False).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["iCaRL", "ER", "GEM"]


def test_the_search_and_what_is_held_stand_in_a_row(tmp_path: Path, recorded: Recording) -> None:
    record = recorded("er", 0, 0.5)
    (tmp_path / "regime").mkdir()
    (tmp_path / "regime" / "ta-smnist.jsonl").write_text('{"method": "er"}\n' * 3)
    (row,) = (r for r in table_rows(tmp_path, ["ta-smnist"]) if r[2] == "recorded")
    assert row[-2:] == (f"{784 * record.coreset_total / 1000:,.0f}", "3")


def test_columns_stand_side_by_side() -> None:
    text = format_table([("1", "22"), ("333", "4")], ("a", "b"))
    assert text.splitlines() == ["a    b", "---  --", "1    22", "333  4"]


def test_rows_of_a_scenario_that_the_paper_does_not_have(tmp_path: Path) -> None:
    assert table_rows(tmp_path, ["ta-smnist-5k", "my-own"]) == []
