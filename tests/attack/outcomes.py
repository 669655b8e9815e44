"""What may come of an attack, and how often it did."""

from __future__ import annotations

from collections import Counter

# What may come of a try. The last three must not.
RIGHT, REFUSED, WRONG, TRACEBACK, SILENT = "right", "one sentence", "wrong", "traceback", "stuck"
OUTCOMES = (RIGHT, REFUSED, WRONG, TRACEBACK, SILENT)


class Tally(Counter[str]):
    """How often an attack ended how; `notes` say what should not have been."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def add(self, outcome: str, note: str = "") -> None:
        assert outcome in OUTCOMES
        self[outcome] += 1
        if outcome not in (RIGHT, REFUSED):
            self.notes.append(f"{outcome}: {note}")


def table(counted: list[tuple[str, dict[str, int]]]) -> list[str]:
    """A row an attack, a column an outcome."""
    head = ["attack", "tries", *OUTCOMES]
    rows = [
        [name.replace("_", " "), str(sum(n.values())), *(str(n.get(o, 0)) for o in OUTCOMES)]
        for name, n in counted
    ]
    total = [sum(int(row[i]) for row in rows) for i in range(1, len(head))]
    rows.append(["together", *map(str, total)])
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in [head, *rows]
    ]
