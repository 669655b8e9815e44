"""Processes that tests start: commands, and a Dask cluster on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tiny
from distributed import Client

import rclcpb_core as core
from rclcpb import images

SCRIPT = Path(core.__file__)


@contextmanager
def made_up_mnist(folder: Path) -> Iterator[Path]:
    """A folder with an MNIST of a few made-up images, which costs no time to load.

    What is not the published set would be refused, but for this: here, and in every process
    that is started here.
    """
    rng = np.random.default_rng(0)
    x, y = tiny.images(range(10), 24, rng, size=28)
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x[::3], y_test=y[::3])
    content = "from rclcpb.images import SHA256\n\nSHA256.pop('mnist', None)\n"
    (folder / "sitecustomize.py").write_text(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(images.SHA256, "mnist")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(SCRIPT.parent)]))
        yield folder


@contextmanager
def started(*command: str, cwd: Path, **environment: str) -> Iterator[Any]:
    """A process in a group of its own, of which nothing is left in the end."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None or process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    """While that process lives."""
    end = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happened in five minutes"
        time.sleep(0.01)


def running_in(folder: Path, *parents: int) -> list[psutil.Process]:
    """Those below these processes that hold the lock of a run in a folder."""
    below = [p for parent in parents for p in psutil.Process(parent).children(True)]
    below += [psutil.Process(parent) for parent in parents]
    return [
        p
        for p in below
        if any(f.path.startswith(str(folder)) and f.path.endswith(".lock") for f in p.open_files())
    ]


@contextmanager
def cluster(
    folder: Path, workers: int, lacking: tuple[str, ...] = ()
) -> Iterator[tuple[str, list[Any]]]:
    """A scheduler and workers of two threads, as processes: its address, and they.

    Those named in `lacking`, "scheduler" or "worker", find a broken rclcpb.
    """
    note, broken = folder / "scheduler.json", folder / "broken"
    (broken / "rclcpb").mkdir(parents=True)
    (broken / "rclcpb" / "__init__.py").write_text("raise ImportError('not here')")

    def start(role: str, *options: str) -> Any:
        path = str(broken if role in lacking else SCRIPT.parent)
        path += os.pathsep + os.environ.get("PYTHONPATH", "")  # of made-up images
        words = ["-m", f"distributed.cli.dask_{role}", *options]
        words += ["--no-dashboard", "--host", "127.0.0.1"]
        return stack.enter_context(started(*words, cwd=folder, PYTHONPATH=path))

    with ExitStack() as stack:
        scheduler = start("scheduler", "--port", "0", "--scheduler-file", str(note))
        wait_for(lambda: note.exists() and "address" in note.read_text(), scheduler)
        address = json.loads(note.read_text())["address"]
        threads = ["--no-nanny", "--nthreads", "2", "--local-directory", str(folder)]
        working = [start("worker", address, *threads) for _ in range(workers)]
        if working:  # wait for all: else the first might do all the work
            with Client(address, timeout=300) as client:
                client.wait_for_workers(workers, timeout=300)
        yield address, [scheduler, *working]


@contextmanager
def meanwhile(action: Callable[[], Any]) -> Iterator[None]:
    """Something else happens at the same time, and has to have happened in the end."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action)
        yield
        future.result()
