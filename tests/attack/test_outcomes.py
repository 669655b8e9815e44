"""The table that the attack ends with, and that it fails where it should."""

from __future__ import annotations

import pytest
from outcomes import REFUSED, RIGHT, WRONG, Tally, table


def test_the_table_has_a_row_an_attack_and_one_for_all() -> None:
    lines = table(
        [("kill_9", {RIGHT: 200}), ("odd_command_lines", {RIGHT: 20, REFUSED: 279, WRONG: 1})]
    )
    assert [line.split()[-6:] for line in lines[1:]] == [
        ["200", "200", "0", "0", "0", "0"],
        ["300", "20", "279", "1", "0", "0"],
        ["500", "220", "279", "1", "0", "0"],
    ]
    assert lines[2].startswith("odd command lines") and len({len(line) for line in lines}) == 1


def test_what_may_not_be_is_noted() -> None:
    tally = Tally()
    tally.add(RIGHT, "fine")
    tally.add(WRONG, "the third")
    assert tally.notes == ["wrong: the third"] and tally.total() == 2
    with pytest.raises(AssertionError):
        tally.add("perhaps")
