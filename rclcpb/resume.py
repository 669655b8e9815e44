"""Stopping and going on: Algorithm 1's state as tensors and JSON values, and back."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from rclcpb.method import Method, Samples, below, moments, samples


class Resumable(Method):
    """What a learner with a network and stored images needs in order to go on bit for bit."""

    net: Any
    kept_head: Any  # a single head before it was widened
    chosen: list[Tensor]
    coreset: list[Samples]
    learned: int
    structure: dict[str, Any]
    under_way: dict[str, Any]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"net.{k}": v.clone() for k, v in self.net.state_dict().items()}
        if self.kept_head is not None:
            kept = self.kept_head.state_dict()
            state |= {f"kept.{k}": v.clone() for k, v in kept.items()}
            state["kept_form"] = self.kept_head.form()
        state |= {f"chosen.{t}": chosen.clone() for t, chosen in enumerate(self.chosen)}
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
        indices = [chosen[str(t)].to(self.device) for t in range(len(chosen))]
        given, device = enumerate(indices), self.device
        coreset = [samples(self.scenario, t, device=device).rows(c) for t, c in given]
        structure, under_way = copy.deepcopy(state["structure"]), {}
        if state["rounds"]:
            under_way = {"rounds": state["rounds"], "moments": below("moments.", state)}
        self.learned, self.structure, self.under_way = state["learned"], structure, under_way
        self.net, self.kept_head, self.chosen, self.coreset = net, head, indices, coreset
