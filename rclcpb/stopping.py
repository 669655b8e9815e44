"""A stop that is asked for: Ctrl-C, or the SIGTERM that clusters send before they kill.

The first lets a round end and be saved, for some seconds; the second stops at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GRACE = 10  # seconds that a round may take to end; clusters wait about 30 before they kill
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """As Ctrl-C; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__("stopped; started again, it goes on from its last save.")
        self.number = number


class Asked:
    """Has a stop been asked for?"""

    number: int = 0

    def obey(self) -> None:
        if self.number:
            raise Stopped(self.number)


@contextmanager
def politely() -> Iterator[Asked]:
    """Within it, the first signal is noted, for who can save to `obey`; the next one raises."""
    asked, timed = Asked(), hasattr(signal, "setitimer")
    if threading.current_thread() is not threading.main_thread():
        yield asked  # a thread hears no signal
        return

    def hear(number: int, frame: Any) -> None:
        if asked.number or not timed:
            raise Stopped(asked.number or number)
        asked.number = number
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        os.write(2, b"\nstopping when this round is over and saved (again: at once)\n")

    heard = (*SIGNALS, signal.SIGALRM) if timed else SIGNALS
    before = {number: signal.getsignal(number) for number in heard}
    for number in heard:
        signal.signal(number, hear)
    try:
        yield asked
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def terminable() -> Iterator[None]:
    """Within it, SIGTERM is as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
