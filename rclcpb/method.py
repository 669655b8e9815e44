"""The one seam: what a method is given, what it is asked, and what all methods share."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from rclcpb import checks
from rclcpb.distort import distort
from rclcpb.files import RclCpbError
from rclcpb.scenarios import Scenario

Shape: TypeAlias = tuple[int, int, int]  # of an image: channels, height, width


class Samples(NamedTuple):
    """Inputs of one task and their places in a head."""

    x: Tensor  #: (N, pixels), or (N, C, H, W) for a trunk
    y: Tensor  #: columns of the head
    head: int = 0
    pixels: Tensor | None = None  #: how they were shuffled
    mirror: bool = True  #: a mirrored image keeps its class
    answers: Tensor | None = None  #: (N, classes), to learn in place of the labels

    def rows(self, index: Tensor) -> Samples:
        """Some of the samples, as x lies in memory: index_select would undo channels last."""
        if self.x.dim() == 2:
            x = self.x.index_select(0, index)
        else:
            x = self.x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
        answers = None if self.answers is None else self.answers.index_select(0, index)
        return self._replace(x=x, y=self.y.index_select(0, index), answers=answers)

    def take(self, index: Tensor, shape: Shape, kind: str) -> Samples:
        """A batch, its images distorted (in their order before any shuffle)."""
        batch = self.rows(index)
        if kind == "none":
            return batch
        if self.pixels is None:
            return batch._replace(x=distort(batch.x, shape, kind, self.mirror))
        x = distort(batch.x[:, self.pixels.argsort()], shape, kind, self.mirror)
        return batch._replace(x=x[:, self.pixels])


def joined(a: Samples, b: Samples) -> list[Samples]:
    """Two sets of samples as one, if one head answers to both."""
    if a.head != b.head:
        return [a, b]
    answers = b.answers
    if answers is not None:
        answers = torch.cat([F.one_hot(a.y, answers.shape[1]).to(answers), answers])
    return [b._replace(x=torch.cat([a.x, b.x]), y=torch.cat([a.y, b.y]), answers=answers)]


def answers_of(sets: Sequence[Samples], head: Any) -> Tensor:
    """Of sets of one head: answers, 0 for classes since; where none are, labels as answers."""
    columns = head.shape[0]
    given = [
        F.one_hot(one.y, columns).to(one.x.dtype) if one.answers is None else one.answers
        for one in sets
    ]
    return torch.cat([F.pad(one, (0, columns - one.shape[1])) for one in given])


def samples(scenario: Scenario, t: int, split: str = "train", device: Any = "cpu") -> Samples:
    """A task's data as tensors on the device; with heads, task t is head t."""
    checks.instance("scenario", scenario, Scenario)
    checks.whole("t", t, 0, len(scenario.tasks) - 1)
    if split not in ("train", "test"):
        raise RclCpbError(f"split={split!r}: choose from train, test.")
    task, device = scenario.tasks[t], checks.device(device)
    x = scenario.inputs(getattr(task, f"x_{split}"), task, device)
    y = scenario.targets(getattr(task, f"y_{split}"), t, device)
    shuffle = task.permutation
    pixels = None if shuffle is None else torch.tensor(shuffle, device=device)
    return Samples(x, y, t if scenario.heads == "multi" else 0, pixels, task.mirror)


@contextmanager
def full_precision() -> Iterator[None]:
    """Without torch.autocast, whose halves a posterior's widths would not survive.

    Nor with torch.inference_mode, whose tensors cannot learn.
    """
    with ExitStack() as off:
        if torch.is_inference_mode_enabled():
            off.enter_context(torch.inference_mode(False))
        for device in ("cpu", "cuda", "mps", "xpu"):
            if torch.is_autocast_enabled(device):
                off.enter_context(torch.autocast(device, enabled=False))
        yield


class _Turn:
    """Who draws: torch's generator is one for all threads, so that they take turns."""

    def __init__(self) -> None:
        self.new()
        if hasattr(os, "register_at_fork"):  # a child has not the thread that held it
            os.register_at_fork(after_in_child=self.new)

    def new(self) -> None:
        self.lock = threading.RLock()


_TURN = _Turn()


@contextmanager
def seeded(*key: Any) -> Iterator[None]:
    """Randomness as a function of (seed, task, phase, round) and of nothing before it.

    That is what lets a stopped run go on bit for bit, and runs share a process. Threads wait
    for each other here, so that learners in two of them do not disturb each other; numbers
    that a thread draws from torch elsewhere meanwhile would.
    """
    plain = tuple(k.item() if hasattr(k, "item") else k for k in key)  # np.int64(0) is 0
    digest = hashlib.sha256(repr(plain).encode()).digest()
    with _TURN.lock, full_precision(), torch.random.fork_rng():
        torch.manual_seed(int.from_bytes(digest[:7], "little"))
        yield


def batches(samples: int, size: int, steps: int, device: torch.device) -> Iterator[Tensor]:
    """Indices of `steps` batches: a shuffle of the samples after another."""
    left = 0
    while steps:
        if not left:
            order = torch.randperm(samples).to(device).split(size)
            left = len(order)
        yield order[len(order) - left]
        left, steps = left - 1, steps - 1


def below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """The entries whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def moments(of: torch.optim.Optimizer | dict[str, Tensor]) -> dict[str, Tensor]:
    """An optimiser's state by names, or one that was loaded and not used yet."""
    if isinstance(of, dict):
        return {f"moments.{name}": value for name, value in of.items()}
    state = of.state_dict()["state"]
    return {f"moments.{i}.{k}": v.clone() for i, vs in state.items() for k, v in vs.items()}


KEPT = {"Adam": ("step", "exp_avg", "exp_avg_sq"), "Natural": ("step", "mean")}


def load_moments(optimizer: torch.optim.Optimizer, under_way: dict[str, Any]) -> int:
    """Put the moments of a fit under way back; the rounds it had."""
    # each must be there and have its shape: a fused step writes where that says
    state, found = optimizer.state_dict(), under_way["moments"]
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    kinds = KEPT.get(type(optimizer).__name__, ())
    names = {f"{i}.{kind}" for i in range(len(shapes)) for kind in kinds} or set(found)

    def fits(name: str, value: Tensor) -> bool:
        i, kind = name.split(".")
        shape = () if kind == "step" or not (kinds or value.dim()) else shapes[int(i)]
        return value.shape == shape and value.dtype == torch.float32

    if found.keys() != names or not all(fits(*pair) for pair in found.items()):
        raise RclCpbError("the optimiser's state is of another network: delete its checkpoint.")
    for name, value in found.items():
        i, kind = name.split(".")
        state["state"].setdefault(int(i), {})[kind] = value.clone()  # steps change it in place
    optimizer.load_state_dict(state)  # which moves them to the device
    return int(under_way["rounds"])


class Round(NamedTuple):
    """What a fit tells after each of its rounds."""

    done: int
    of: int
    nll: float
    kl: float | None = None


class Phase(NamedTuple):
    """One fit: how many steps a round, and with what."""

    name: str  #: part of the seed
    unit: str  #: what a round is called
    rounds: list[int]  #: steps of each
    batch: int
    lr_mu: float
    lr_rho: float
    kl_weight: float  #: of the KL, already divided by the number of samples
    augment: str  #: distortion of the images fitted
    distort: str = "none"  #: and of stored images mixed in
    mixed: int = 0  #: so many of these a batch

    @staticmethod
    def training(config: Any, samples: int) -> Phase:
        """Eq. 8 over the task's data: a round is an epoch."""
        rounds = [math.ceil(samples / config.batch_size)] * config.epochs
        rates, kl_weight = (config.lr_mu, config.lr_rho), config.kl_weight / samples
        stored = config.distort, config.replay_mix
        batch, looks = config.batch_size, config.augment
        return Phase("train", "epoch", rounds, batch, *rates, kl_weight, looks, *stored)

    @staticmethod
    def replaying(config: Any, samples: int, name: str = "replay") -> Phase:
        """Eq. 8 over stored samples: rounds of at most 100 steps, or epochs."""
        whole, rest = divmod(config.replay_steps, 100)
        rounds = [100] * whole + ([rest] if rest else [])
        if config.replay_epochs:
            rounds = [math.ceil(samples / config.replay_batch)] * config.replay_epochs
        rates = config.replay_lr, config.replay_lr * (config.lr_rho / config.lr_mu)
        kl_weight = config.replay_kl / max(samples, 1)
        batch, looks = config.replay_batch, config.distort
        return Phase(name, "round", rounds, batch, *rates, kl_weight, looks)


class Method:
    """What learns one task after another: the seam between methods and the runner.

    A task is `store`, `begin`, the rounds of `fit`, `end`. `answer` may be asked at any time.
    What is random is drawn within `seeded`, so that a run that was stopped between two rounds
    goes on bit for bit: `load` the `state`, `store` as before, and `fit` does the rounds left.
    """

    takes: ClassVar[type] = object  #: the settings it wants
    learned: int | None = None  #: tasks that have ended, if the method counts them

    def __init__(self, scenario: Scenario, config: Any, seed: int = 0, device: Any = "cpu") -> None:
        checks.instance("scenario", scenario, Scenario)
        checks.instance("config", config, self.takes)
        self.scenario, self.config = scenario, config
        self.seed: int = checks.whole("seed", seed)
        self.device = checks.device(device)

    def store(self, t: int, data: Samples) -> Samples:
        """Keep some of the task's data, if the method does; what is left to train on."""
        return data

    def begin(self, t: int, data: Samples) -> None:
        """Make ready for task t, without training."""

    def fit(self, t: int, data: Samples) -> Iterator[Round]:
        """Learn task t; one `Round` after another."""
        raise NotImplementedError

    def end(self, t: int) -> None:
        """What the method does once the task is learned."""

    def answer(self, j: int, x: Tensor) -> Tensor:
        """Class probabilities (N, classes) for inputs of task j."""
        raise NotImplementedError

    def rounds_a_task(self) -> int:
        """How many rounds `fit` has, for a progress bar."""
        return int(self.config.epochs)

    def unchanged(self, j: int) -> bool:
        """Do the answers for task j stand as they were a task ago?"""
        return False

    def notes(self) -> dict[str, Any]:
        """Of the task just learned: the fields of a `Stage` that the method knows."""
        return {}

    def sizes(self) -> list[int]:
        """Neurons a hidden layer."""
        return self.notes().get("hidden") or []

    def parameters(self) -> int:
        """Numbers that the network has learned."""
        raise NotImplementedError

    def stored(self) -> int:
        """Images kept of earlier tasks."""
        return 0

    def keep(self, path: Path, about: dict[str, Any]) -> None:
        """Write the trained network, for a method that has one to use alone."""
        raise RclCpbError(f"{type(self).__name__} keeps no network of its own.")

    def state(self) -> dict[str, Any]:
        """Tensors and JSON values: all that is needed to go on, also between two rounds."""
        raise NotImplementedError

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken of."""
        raise NotImplementedError
