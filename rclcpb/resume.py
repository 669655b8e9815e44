"""A learner's books: what it refuses, stopping and going on, a network to start from, counts."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rclcpb import checks
from rclcpb.files import RclCpbError
from rclcpb.kept import KeptNetwork
from rclcpb.method import Method, Phase, Samples, Shape, below, moments, samples


class Resumable(Method):
    """What a learner with a network and stored images needs besides Algorithm 1."""

    net: Any
    image_shape: Shape
    kept_head: Any  # a single head before it was widened
    chosen: list[Tensor]
    coreset: list[Samples]
    config: Any
    learned: int
    structure: dict[str, Any]
    under_way: dict[str, Any]

    def check(self) -> None:
        """Refuse what could not be learned to the end."""
        for t, task in enumerate(self.scenario.tasks):
            if self.config.coreset > len(task.y_train) - len(task.classes):
                raise RclCpbError(
                    f"coreset={self.config.coreset}, but task {t + 1} ({task.name}) has"
                    f" only {len(task.y_train)} samples, and keeps one a class to train on:"
                    " choose a smaller coreset."
                )
        shuffled = any(task.permutation is not None for task in self.scenario.tasks)
        if shuffled and self.scenario.heads == "single" and self.config.distort != "none":
            raise RclCpbError(
                "one head's stored images are shuffled each in its own way and cannot"
                " be distorted together: set distort='none'."
            )

    def body_of(self, start: KeptNetwork) -> KeptNetwork:
        """A kept network without its heads, to go on from."""
        checks.instance("start", start, type(self.net))
        body = copy.deepcopy(start)
        body.heads = torch.nn.ModuleList()
        kept, new = body.forms(), self.net.forms()
        if start.image_shape != self.image_shape or kept.keys() != new.keys():
            raise RclCpbError(
                f"the network to start from reads images {start.image_shape} with layers"
                f" {', '.join(kept)}; this run needs {self.image_shape} and {', '.join(new)}."
            )
        if self.config.new_into_old != "none":
            if grown := [name for name, form in kept.items() if len(form.get("steps", ())) > 1]:
                raise RclCpbError(
                    f"the network to start from has grown with new_into_old='none' ({grown[0]}"
                    " lacks weights): set that, too."
                )
            kept = {name: {"shape": form["shape"]} for name, form in kept.items()}
        net = copy.deepcopy(self.net)
        net.become(kept, body.state_dict())
        return net

    def check_finite(self, t: int, phase: Phase, done: int, nll: float, kl: float) -> None:
        if not math.isfinite(nll + kl):
            raise RclCpbError(
                f"task {t + 1}, {phase.name}, {phase.unit} {done}: the loss is not finite"
                f" (NLL {nll:.3g}, KL {kl:.3g}): lower lr_mu and lr_rho, or rho_init."
            )

    def sizes(self) -> list[int]:
        return self.net.sizes()

    def parameters(self) -> int:
        return sum(p.numel() for p in self.net.parameters())

    def stored(self) -> int:
        return sum(len(chosen) for chosen in self.chosen)

    def keep(self, path: Path, about: dict[str, Any]) -> None:
        self.net.save(path, about)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"net.{k}": v.clone() for k, v in self.net.state_dict().items()}
        if self.kept_head is not None:
            kept = self.kept_head.state_dict()
            state |= {f"kept.{k}": v.clone() for k, v in kept.items()}
            state["kept_form"] = self.kept_head.form()
        state |= {f"chosen.{t}": chosen.clone() for t, chosen in enumerate(self.chosen)}
        told = {t: stored.answers for t, stored in enumerate(self.coreset)}
        state |= {f"answers.{t}": a.clone() for t, a in told.items() if a is not None}
        state |= {"forms": self.net.forms(), "learned": self.learned, "rounds": 0}
        state["structure"] = copy.deepcopy(self.structure)
        if self.under_way:
            state |= {"rounds": self.under_way["rounds"]} | moments(self.under_way["moments"])
        return state

    def load(self, state: dict[str, Any]) -> None:
        net, head = copy.deepcopy(self.net), None  # a state that does not fit changes nothing
        net.become(state["forms"], below("net.", state))
        if kept := below("kept.", state):
            head = copy.deepcopy(net.heads[0])
            head.become(state["kept_form"], kept)
        chosen = below("chosen.", state)
        indices, coreset = [], []
        for task in range(len(chosen)):
            data = samples(self.scenario, task, device=self.device)
            index = checks.stored(chosen[str(task)], len(data.y), self.config.coreset)
            indices.append(index.to(self.device))
            coreset.append(data.rows(indices[task]))
        answered = self.config.stored_targets == "answers" and self.config.coreset
        if below("answers.", state).keys() != {str(t) for t in range(state["learned"]) if answered}:
            raise RclCpbError("stored answers: not those of the tasks learned.")
        for t, told in below("answers.", state).items():
            if told.shape[:1] != coreset[int(t)].y.shape or told.dtype != torch.float32:
                raise RclCpbError(f"stored answers: {told.dtype} {tuple(told.shape)} do not fit.")
            coreset[int(t)] = coreset[int(t)]._replace(answers=told.to(self.device, copy=True))
        checks.whole("rounds", state["rounds"], 0, self.config.epochs)
        structure, under_way = copy.deepcopy(state["structure"]), {}
        if state["rounds"]:
            under_way = {"rounds": state["rounds"], "moments": below("moments.", state)}
        self.learned, self.structure, self.under_way = state["learned"], structure, under_way
        self.net, self.kept_head, self.chosen, self.coreset = net, head, indices, coreset
