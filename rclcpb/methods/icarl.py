"""iCaRL: exemplars chosen by herding, and the nearest of their means as the answer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from rclcpb.files import RclCpbError
from rclcpb.method import Samples, samples
from rclcpb.methods.network import Batch
from rclcpb.methods.plain import CHUNK, PlainMethod

FARTHEST = 4.0  # the squared distance of opposite unit vectors: for classes without exemplars


def herd(features: Tensor, count: int) -> list[int]:
    """Greedily the images whose features' mean stays nearest to the mean of all.

    p_k = argmin over x of |mu - (phi(x) + sum of the chosen phi) / k|, no image twice.
    """
    mean, total = features.mean(0), torch.zeros_like(features[0])
    chosen: list[int] = []
    for k in range(1, min(count, len(features)) + 1):
        gap = (mean - (features + total) / k).square().sum(1)  # (N,)
        gap[chosen] = math.inf
        chosen.append(int(gap.argmin()))
        total += features[chosen[-1]]
    return chosen


class ICaRL(PlainMethod):
    """Incremental classifier and representation learning.

    L(theta) = mean over the batch and as many exemplars, sum over outputs c, of
        bce(f_c(x), [c = y])                              for the task's classes,
        distillation bce(f_c(x), sigmoid f_c(x; theta_{t-1}))   for all others
    answer: the class whose exemplars' mean of normalised features is nearest.
    """

    stores = needs_memory = True

    def begin(self, t: int, data: Samples) -> None:
        if t:
            old = {f"old.{name}": p.detach().clone() for name, p in self.net.named_parameters()}
            self.kept |= old
        super().begin(t, data)

    def check_kept(self, begun: bool) -> None:
        """The older network has the outputs of a task ago."""
        older = {name: v for name, v in self.kept.items() if name.startswith("old.")}
        wanted = {f"old.{name}": p.shape for name, p in self.net.named_parameters() if self.task}
        for name in wanted:
            if name.startswith("old.output."):
                wanted[name] = torch.Size((self.outputs(self.task - 1), *wanted[name][1:]))
        single = all(value.dtype == torch.float32 for value in older.values())
        if {name: value.shape for name, value in older.items()} != wanted or not single:
            raise RclCpbError("the older network is another one.")
        everything, self.kept = self.kept, {n: v for n, v in self.kept.items() if n not in older}
        super().check_kept(begun)
        self.kept = everything

    def loss(self, t: int, batch: Batch) -> Tensor:
        if self.tasks_stored():
            batch = Batch.join([batch, self.memory().at(self.draw())])
        logits = self.net(batch.x)  # (B, outputs)
        targets = F.one_hot(batch.y, logits.shape[1]).to(logits)
        weights = self.visible(False)[batch.task].to(logits)
        if t:
            names = [name for name, _ in self.net.named_parameters()]
            old_weights = {name: self.kept[f"old.{name}"] for name in names}
            with torch.no_grad():
                old = functional_call(self.net, old_weights, (batch.x,)).sigmoid()
            own = self.own_outputs(t)
            known = torch.arange(old.shape[1], device=self.device)
            known = known[~torch.isin(known, own)]
            targets[:, known] = old[:, known]
            weights[:, known] = self.config.distillation
        loss = F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="sum")
        return loss / len(batch.y)

    def own_outputs(self, t: int) -> Tensor:
        """The outputs of the task's own classes."""
        columns, classes = self.scenario.columns(t), self.scenario.tasks[t].classes
        own = torch.tensor([columns.index(c) for c in classes], device=self.device)
        return own + self.offset(t)

    @torch.no_grad()
    def normalised(self, x: Tensor) -> Tensor:
        """Features of length 1 (N, width)."""
        return torch.cat([F.normalize(self.net.features(part)) for part in x.split(CHUNK)])

    def remember(self, t: int) -> None:
        """Equally many exemplars of each class, by herding."""
        data = samples(self.scenario, t, "train", self.device)
        features, labels, chosen = self.normalised(data.x), data.y.unique(), []
        for k, label in enumerate(labels):
            mine = (data.y == label).nonzero().flatten()
            count = (self.config.memory + k) // len(labels)  # what is left over: to the last
            chosen.append(mine[herd(features[mine], count)])
        self.kept[f"memory.{t}"], self.remembered = torch.cat(chosen), None

    @torch.no_grad()
    def answer(self, j: int, x: Tensor) -> Tensor:
        """softmax of -|phi(x) - mean|^2 over the classes that task j may choose from."""
        count = self.outputs(self.task)
        distance = x.new_full((len(x), count), FARTHEST)
        if self.tasks_stored():
            memory = self.memory()
            features, queries = self.normalised(memory.x), self.normalised(x)
            for output in memory.y.unique().tolist():
                mean = F.normalize(features[memory.y == output].mean(0), dim=0)
                distance[:, output] = (queries - mean).square().sum(1)
        return (-distance[:, self.visible(False)[j]]).softmax(1)
