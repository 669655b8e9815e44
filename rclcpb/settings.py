"""What every dataclass of settings shares: checked types and choices, and the way from JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

from rclcpb.files import RclCpbError

MOST = 10**7  # epochs, neurons, images: more would fill the memory before anything is learned


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(cast(Any, kind))}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The base of Config and of the other methods' settings."""

    # Fields of earlier versions, and the values with which today's code does the same.
    RETIRED: ClassVar[dict[str, tuple[Any, ...]]] = {}
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, hint in _hints(cast(Hashable, type(self))).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), hint))
        for name in self.POSITIVE + self.NOT_NEGATIVE:
            value, positive = getattr(self, name), name in self.POSITIVE
            numbers = value if isinstance(value, tuple) else (value,)
            good = all(n > 0 or (n == 0 and not positive) for n in numbers)
            if not good or not numbers:
                raise RclCpbError(
                    f"{name}={value}: must be {'above 0' if positive else '0 or more'}."
                )
            if any(isinstance(n, int) and n > MOST for n in numbers):
                raise RclCpbError(f"{name}={value}: must be {MOST} or less.")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The settings a record holds; a field younger than it has its default."""
        known = {f.name for f in dataclasses.fields(cls)}
        odd = {k for k in set(values) - known if values[k] not in cls.RETIRED.get(k, ())}
        if odd:
            names = ", ".join(sorted(odd))
            raise RclCpbError(f"this config is from another version (fields: {names}).")
        return cls(**{k: v for k, v in values.items() if k in known})

    def as_json(self) -> dict[str, Any]:
        """The settings as a record has them: lists for tuples."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value as its type says, or one sentence; a lone number serves as a tuple."""
    if get_origin(hint) is tuple:
        value = value.tolist() if hasattr(value, "tolist") else value  # an array's, a tensor's
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return tuple(checked(name, v, get_args(hint)[0]) for v in values)
    if choices := get_args(hint):
        if not isinstance(value, str) or value not in choices:
            raise RclCpbError(f"{name}={_short(value)}: choose from {', '.join(choices)}.")
        return str(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise RclCpbError(f"{name}={_short(value)}: must be True or False.")
        return value
    try:  # numpy's numbers are welcome, words and 2.5 epochs are not
        number = hint(value)
        fits = not isinstance(value, str | bool) and bool(number == value) and math.isfinite(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor's
        fits = False
    if not fits:
        kind = {int: "a whole number", float: "a finite number"}.get(hint, hint.__name__)
        raise RclCpbError(f"{name}={_short(value)}: must be {kind}.")
    return number


def _short(value: Any) -> str:
    """What was given, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
