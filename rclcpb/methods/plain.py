"""Plain networks: the base class of the other methods, finetune and joint."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb import checks, method
from rclcpb.coreset import by_class
from rclcpb.files import RclCpbError
from rclcpb.method import Method, Round, Samples, batches, samples, seeded
from rclcpb.methods.network import Batch, PlainConfig, PlainNet
from rclcpb.scenarios import Scenario

CHUNK = 1000  # images a forward pass outside training


class PlainMethod(Method):
    """Adam on the cross-entropy of one task after another; the methods change a step of it.

    `kept` holds what a method carries on besides its network, as named tensors: which
    images are stored ("memory.0": their places in task 0's training data), Fishers,
    logits. A state is the network, `kept`, and in the midst of a fit Adam's moments.
    """

    config: PlainConfig
    takes = PlainConfig
    stores = False  # images?
    needs_memory = False  # or does it work without any, too?
    KEPT: ClassVar[tuple[str, ...]] = ()  # for each parameter, once a task has begun
    STORED: ClassVar[tuple[str, ...]] = ("memory",)  # for each task, where images are stored

    learned: int

    def __init__(
        self, scenario: Scenario, config: PlainConfig, seed: int = 0, device: Any = "cpu"
    ) -> None:
        super().__init__(scenario, config, seed, device)
        self.task, self.learned = 0, 0  # the one at hand, and those that have ended
        self.kept: dict[str, Tensor] = {}
        self.under_way: dict[str, Any] = {}  # a fit between two of its rounds
        self.remembered: Batch | None = None  # the stored images, once they are asked for
        fewest = min(len(task.y_train) for task in scenario.tasks)
        if self.needs_memory and not config.memory:
            raise RclCpbError("this method lives on stored images: give it a memory above 0.")
        if self.stores and config.memory >= fewest:
            raise RclCpbError(f"memory={config.memory}, but a task has only {fewest} images.")
        with seeded(self.seed, "network"):
            self.net: Any = self.network()

    def network(self) -> nn.Module:
        shape, trunk = self.scenario.image_shape(), self.scenario.trunk
        return PlainNet(shape, self.config.hidden, trunk, self.outputs(0)).to(self.device)

    # the output layer's rows

    def outputs(self, t: int) -> int:
        """How many outputs the network has at task t."""
        if self.scenario.heads == "single":
            return len(self.scenario.columns(t))
        return sum(len(task.classes) for task in self.scenario.tasks[: t + 1])

    def offset(self, t: int) -> int:
        """The first of task t's outputs: a single head's columns count from 0."""
        return self.outputs(t - 1) if t and self.scenario.heads == "multi" else 0

    def visible(self, masked: bool) -> Tensor:
        """Which outputs (tasks so far, outputs) an image of each task may choose from."""
        shown = torch.zeros(self.task + 1, self.outputs(self.task), dtype=torch.bool)
        for j in range(self.task + 1):
            if self.scenario.heads == "multi":
                shown[j, self.offset(j) : self.outputs(j)] = True
            elif masked:
                columns = self.scenario.columns(self.task)
                shown[j, [columns.index(c) for c in self.scenario.tasks[j].classes]] = True
            else:
                shown[j] = True
        return shown.to(self.device)

    # Algorithm: begin, fit, end

    def begin(self, t: int, data: Samples) -> None:
        self.task = t
        with seeded(self.seed, t, "head"):
            self.enlarge(t)

    def enlarge(self, t: int) -> None:
        """Give the network the size that it has at task t."""
        self.net.widen(self.outputs(t))

    def fit(self, t: int, data: Samples) -> Iterator[Round]:
        epochs, self.optimizer = self.config.epochs, self.adam()
        first = method.load_moments(self.optimizer, self.under_way) if self.under_way else 0
        for r in range(first, epochs):
            with seeded(self.seed, t, "fit", r):
                nll = self.epoch(t, data, r)
            if not math.isfinite(nll):
                raise RclCpbError(f"task {t + 1}, epoch {r + 1}: the loss is not finite: lower lr.")
            self.under_way = {"rounds": r + 1, "moments": self.optimizer}
            yield Round(r + 1, epochs, nll)
        self.under_way = {}

    def adam(self) -> torch.optim.Adam:
        """A fresh optimiser of what is not frozen."""
        trained = [p for p in self.net.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, self.config.lr, fused=True)

    def epoch(self, t: int, data: Samples, done: int) -> float:
        """One pass over the training images, after `done` others; the mean loss on the way."""
        config, number = self.config, self.images(t, data)
        steps = math.ceil(number / config.batch_size)
        total = data.x.new_zeros(())
        for step, index in enumerate(batches(number, config.batch_size, steps, self.device)):
            left = 1 - (done + step / steps) / config.epochs
            self.optimizer.param_groups[0]["lr"] = config.lr * (left if config.decay else 1)
            total += self.step(t, self.take(t, data, index))
        return (total / steps).item()

    def images(self, t: int, data: Samples) -> int:
        """How many images an epoch has."""
        return len(data.y)

    def take(self, t: int, data: Samples, index: Tensor) -> Batch:
        """A batch of the training images."""
        part = data.take(index, self.scenario.image_shape(), "none")
        return Batch(part.x, part.y + self.offset(t), torch.full_like(part.y, t))

    def step(self, t: int, batch: Batch) -> Tensor:
        """One step of Adam; the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss(t, batch)
        loss.backward()
        self.change_gradients(t)
        self.optimizer.step()
        return loss.detach()

    def loss(self, t: int, batch: Batch) -> Tensor:
        """What a method minimises at task t."""
        return self.cross_entropy(batch, self.config.mask == "own")

    def cross_entropy(self, batch: Batch, masked: bool = False) -> Tensor:
        hidden = ~self.visible(masked)[batch.task]  # (B, outputs)
        return F.cross_entropy(self.net(batch.x).masked_fill(hidden, -math.inf), batch.y)

    def change_gradients(self, t: int) -> None:
        """What a method does to the loss's gradients before the step."""

    def end(self, t: int) -> None:
        if self.stores and self.config.memory:
            self.remember(t)
            if self.config.final_steps:
                self.final_fit(t)
        self.learned = t + 1

    # stored images

    def remember(self, t: int) -> None:
        """Store some of the task's images, equally many of each class at random."""
        data = samples(self.scenario, t, "train", self.device)
        with seeded(self.seed, t, "memory"):
            order = torch.randperm(len(data.y), device=self.device)
            chosen = by_class(data.x, data.y, self.config.memory, order, medoids=False, left=0)
        self.kept[f"memory.{t}"], self.remembered = chosen, None

    def fetch(self, j: int, index: Tensor) -> Batch:
        """Training images of task j, by their places."""
        task, places = self.scenario.tasks[j], index.cpu().numpy()
        x = self.scenario.inputs(task.x_train[places], task, self.device)
        y = self.scenario.targets(task.y_train[places], j, self.device) + self.offset(j)
        return Batch(x, y, torch.full_like(y, j))

    def memory(self) -> Batch:
        """All stored images, task after task."""
        if self.remembered is None:
            chosen = [self.kept[f"memory.{j}"] for j in range(self.tasks_stored())]
            parts = [self.fetch(j, index) for j, index in enumerate(chosen)]
            self.remembered = Batch.join(parts)
        return self.remembered

    def tasks_stored(self) -> int:
        return sum(name.startswith("memory.") for name in self.kept)

    def draw(self) -> Tensor:
        """The places of a batch of stored images, drawn at random."""
        count = len(self.memory().y)
        return torch.randint(count, (min(count, self.config.batch_size),)).to(self.device)

    def final_fit(self, t: int) -> None:
        """A fresh Adam on the stored images of all tasks so far, every output in the loss."""
        memory, config = self.memory(), self.config
        optimizer, steps = self.adam(), config.final_steps
        with seeded(self.seed, t, "final"):
            places = batches(len(memory.y), config.batch_size, steps, self.device)
            for step, index in enumerate(places):
                optimizer.param_groups[0]["lr"] = config.lr * (1 - step / steps)
                optimizer.zero_grad()
                self.cross_entropy(memory.at(index)).backward()
                optimizer.step()

    # answers and state

    @torch.no_grad()
    def answer(self, j: int, x: Tensor) -> Tensor:
        logits = torch.cat([self.net(part) for part in x.split(CHUNK)])
        return logits[:, self.visible(False)[j]].softmax(1)

    def notes(self) -> dict[str, Any]:
        return {"hidden": list(self.config.hidden)}

    def parameters(self) -> int:
        return sum(p.numel() for p in self.net.parameters())

    def stored(self) -> int:
        return sum(len(v) for name, v in self.kept.items() if name.startswith("memory."))

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"task": self.task, "learned": self.learned}
        state |= {f"net.{name}": value.clone() for name, value in self.net.state_dict().items()}
        state |= {f"kept.{name}": value.clone() for name, value in self.kept.items()}
        if self.under_way:
            state["rounds"] = self.under_way["rounds"]
            state |= method.moments(self.under_way["moments"])
        return state

    def load(self, state: dict[str, Any]) -> None:
        self.task, self.remembered, self.under_way = state["task"], None, {}
        self.learned = state["learned"]
        kept = method.below("kept.", state).items()
        self.kept = {name: value.to(self.device, copy=True) for name, value in kept}
        with seeded(self.seed, "network"):
            self.net = self.network()
            self.enlarge(self.task)
        self.net.load_state_dict(method.below("net.", state))
        self.check_kept(bool(self.learned or "rounds" in state))
        if "rounds" in state:
            checks.whole("rounds", state["rounds"], 1, self.config.epochs)
            moments = method.below("moments.", state)
            self.under_way = {"rounds": state["rounds"], "moments": moments}

    def check_kept(self, begun: bool) -> None:
        """Is all there that is kept, each of its kind and its size?"""
        parameters = {name: value.shape for name, value in self.net.named_parameters()}
        stored = range(self.learned if self.stores and self.config.memory else 0)
        wanted = {f"{kind}.{of}" for kind in self.KEPT if begun for of in parameters}
        wanted |= {f"{kind}.{j}" for kind in self.STORED for j in stored}
        if odd := wanted ^ self.kept.keys():
            raise RclCpbError(f"{min(odd)}: missing, or nothing of this method.")
        for name, value in self.kept.items():
            kind, _, of = name.partition(".")
            if kind == "memory":
                samples = len(self.scenario.tasks[int(of)].y_train)
                checks.stored(value, samples, self.config.memory)
                continue
            rows = len(self.kept.get(f"memory.{of}", ()))
            like = parameters.get(of, (rows, *value.shape[1:2]))
            if value.dtype != torch.float32 or value.shape != like:
                raise RclCpbError(f"{name}: {value.dtype} {tuple(value.shape)} does not fit.")


class Finetune(PlainMethod):
    """No defence at all: min over theta of L_t(theta), from where task t - 1 ended. The floor."""


class Joint(PlainMethod):
    """min over theta of sum over j <= t of L_j(theta): all tasks so far at once. The ceiling.

    At each task a fresh network learns the union of the tasks so far, `epochs` passes over it.
    """

    def begin(self, t: int, data: Samples) -> None:
        super().begin(t, data)
        with seeded(self.seed, t, "network"):
            self.net = self.network()
            self.enlarge(t)

    def ends(self) -> list[int]:
        """Where each task's images end in the union."""
        counts = torch.tensor([len(task.y_train) for task in self.scenario.tasks])
        return counts.cumsum(0).tolist()

    def images(self, t: int, data: Samples) -> int:
        return self.ends()[t]

    def stored(self) -> int:
        """All of them."""
        return self.ends()[self.task]

    def take(self, t: int, data: Samples, index: Tensor) -> Batch:
        parts, first = [], 0
        for j, end in enumerate(self.ends()[: t + 1]):
            mine = index[(index >= first) & (index < end)]
            if len(mine):
                parts.append(self.fetch(j, mine - first))
            first = end
        return Batch.join(parts)
