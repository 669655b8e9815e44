"""The control of every replay method: the stored images alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from rclcpb.files import RclCpbError
from rclcpb.kept import KeptNetwork
from rclcpb.method import Round, Samples, seeded
from rclcpb_core import Learner, ProgressiveBNN


class StoredImagesAlone(Learner):
    """A fresh network at every task, which learns what is stored and nothing else.

    What a replay method reaches beyond it, it has from the data that it did not store.
    """

    def check(self) -> None:
        super().check()
        if not (self.config.coreset and self.config.replay):
            raise RclCpbError("coreset-only needs a coreset above 0 and replay=True.")

    def body_of(self, start: KeptNetwork) -> KeptNetwork:
        raise RclCpbError("coreset-only begins anew at every task: leave out the start.")

    def begin(self, t: int, data: Samples) -> None:
        with seeded(self.seed, t, "structure"):
            self.net = self.new_network(self.config.hidden)
            self.kept_head = self.open_head(t)

    def fit(self, t: int, data: Samples) -> Iterator[Round]:
        yield from ()

    def unchanged(self, j: int) -> bool:
        """With heads, nothing touches the fit of an earlier task."""
        return self.scenario.heads == "multi" and j < self.learned - 1

    def net_for(self, j: int) -> ProgressiveBNN:
        """The newest task, too, is fitted, whatever `replay_newest` says: else nothing is."""
        if self.scenario.heads == "single" or j >= self.learned:
            return self.net
        net = copy.deepcopy(self.net)
        self.replay(net, self.learned - 1, f"fit {j}", self.coreset[j])
        return net

    def replay(self, net: ProgressiveBNN, t: int, name: str, data: Samples) -> None:
        self.refit(net, t, name, data)  # whose prior is task 1's

    def rounds_a_task(self) -> int:
        return 0
