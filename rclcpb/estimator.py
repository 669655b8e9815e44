"""A classifier for your own data, in the shape people know from scikit-learn.

from rclcpb import ContinualClassifier

classifier = ContinualClassifier()
classifier.learn(x, y)          # one task after another; labels may be words
classifier.learn(x_2, y_2)
classifier.predict(x), classifier.uncertainty(x), print(classifier.summary())
classifier.save("mine.safetensors")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch

import rclcpb_core as core
from rclcpb import checks, intake
from rclcpb.contract import LikeScikitLearn
from rclcpb.files import DAMAGE, RclCpbError, load_tensors, plain, save_tensors
from rclcpb.growing import GrowingLearner, GrowingRun, Piece, check_whole, pieces, summary
from rclcpb.inference import least_in_doubt
from rclcpb.intake import Known, Scale
from rclcpb.method import seeded
from rclcpb.modelcard import CLASSIFIER, listed, write_beside
from rclcpb.runner import checked_hooks
from rclcpb.scenarios import Scenario, Task
from rclcpb.settings import checked
from rclcpb.undo import check_idle

# What unknown data is learned with; chosen on held-out rows of digits and of three tables.
OWN_DATA = core.Config(
    hidden=(64, 64),
    mu_init="fan-in",
    sampling="local",
    new_into_old="zero",
    gamma=(0.2,),
    coreset=100,
    coreset_choice="balanced",
    epochs=20,
    batch_size=32,
    lr_mu=3e-3,
    lr_rho=3e-3,
    decay=True,
    kl_weight=0.1,
    replay_mix=32,
    replay_steps=200,
)


class Uncertainty(NamedTuple):
    """In nats (N,): all of it, what more data of the kind would not and would take away."""

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


class ContinualClassifier(LikeScikitLearn):
    """RCL-CPB for tasks that come one at a time.

    heads="single" answers among all classes met so far; heads="multi" has a head a task, and
    is asked with `task`, or finds the task itself. `memory` bounds the samples stored over all
    tasks; each task stores `config.coreset` of them at most. Tables (N, features) are
    standardised by the first task's mean and deviation; images are not, bytes become 0 to 1.
    What is set here holds from the first task on.
    What is learned is bit for bit what a run of the same scenario learns.
    """

    run_: GrowingRun  # from the first task on
    knowns_: tuple[Known, ...]
    given_: dict[str, Any]
    nets_: dict[tuple[int, int], core.ProgressiveBNN]  # that answer for a piece

    def __init__(
        self,
        config: core.Config | None = None,
        heads: Literal["single", "multi"] = "single",
        trunk: bool = False,
        memory: int | None = None,
        standardise: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.config, self.heads, self.trunk, self.memory = config, heads, trunk, memory
        self.standardise, self.seed, self.device = standardise, seed, device

    # ------------------------------------------------------------------------ learning

    def learn(self, x: Any, y: Any, task: Any = None, test: Any = None, hooks: Any = ()) -> Self:
        """Learn one more task, or nothing of it; all that stays of its data is what is stored.

        `task` names it: with a head a task, more of a known task goes to the head it has.
        `test` is (x, y) to be tested on after this and every later task, and is kept whole.
        """
        return self._learn(x, y, task, test, hooks, anew=not hasattr(self, "run_"))

    def fit(self, x: Any, y: Any) -> Self:
        """Learn one task and forget all before it, once that is learned."""
        return self._learn(x, y, anew=True)

    def _learn(
        self, x: Any, y: Any, task: Any = None, test: Any = None, hooks: Any = (), anew: bool = True
    ) -> Self:
        hooks = checked_hooks(hooks)
        x, y = intake.pair(x, y)
        before = self._first_look(x) if anew else self._known()
        known = before.having(task, y, x)
        head = self._head(known.names) if self.heads == "multi" else 0
        codes, (x_test, y_test) = known.codes(y), intake.to_test_on(test, x, y)
        tested = checks.frozen(known.inputs(x_test)), known.codes(y_test)
        classes = () if anew or self.heads == "single" else self._classes_of(head)
        classes = classes or known.classes(codes)
        if odd := {known.labels[code] for code in {*codes, *tested[1]} - set(classes)}:
            raise RclCpbError(
                f"task {known.names[-1]!r} has no class {', '.join(map(repr, sorted(odd)))}:"
                " learn new classes as a task of their own, and test on none that are new."
            )
        piece = Piece(str(known.names[-1]), known.inputs(x), codes, *tested, classes)
        run = self._new_run(piece) if anew else self.run_
        run.hooks = [*hooks]
        if not anew:
            self.knowns_ = before, known  # how far `run` came says which of them holds
            self.nets_ = {}  # one of them may be the network that learns
        run.learn(piece, head)
        self._have(run, known)
        return self

    def _first_look(self, x: np.ndarray) -> Known:
        """What the first task settles: a sample's shape, and a table's scale."""
        table = x.ndim == 2 and x.dtype != np.uint8
        given = self.standardise
        scaled = table if given is None else checked("standardise", given, bool)
        if given is None and not table:
            intake.check_unit(x)
        return Known(x.shape[1:], Scale.of(x) if scaled else None)

    def _head(self, names: Sequence[Any]) -> int:
        """Which head the last of these tasks has: tasks count in the order they came first."""
        return list(dict.fromkeys(names)).index(names[-1])

    def _classes_of(self, head: int) -> tuple[int, ...]:
        """The classes of a head that there is; of a new one, none."""
        pieces = zip(self.run_.method.head_of, self.run_.scenario.tasks, strict=True)
        return next((task.classes for mine, task in pieces if mine == head), ())

    def _new_run(self, first: Task) -> GrowingRun:
        if self.memory is not None:
            checks.whole("memory", self.memory, 1)
        colour = {"center": 0.5, "scale": 0.25} if self.trunk else {}
        scenario = Scenario("own data", (first,), self.heads, self.trunk, **colour)
        config = self.config or OWN_DATA
        return GrowingRun(GrowingLearner(scenario, config, self.seed, self.device, self.memory))

    def _have(self, run: GrowingRun, known: Known) -> None:
        """All of it at once: no interruption comes in between."""
        self.__dict__.update(run_=run, knowns_=(known,), nets_={}, given_=self.get_params())

    @property
    def known_(self) -> Known:
        """What is known of the data that were learned."""
        learned = len(self.run_.stages)
        return next(known for known in self.knowns_ if len(known.names) == learned)

    @property
    def classes_(self) -> np.ndarray:
        return np.array(sorted(self.known_.labels))

    @property
    def n_features_in_(self) -> int:
        return math.prod(self.known_.shape)

    # ------------------------------------------------------------------------- answers

    def predict(self, x: Any, task: Any = None) -> np.ndarray:
        """The likeliest label of each sample."""
        found = self._answers(x, task)[0].argmax(1)
        return self.classes_[found]

    def predict_proba(self, x: Any, task: Any = None) -> np.ndarray:
        """Probabilities (N, classes) in the order of `classes_`; 0 for what a head cannot say."""
        return self._answers(x, task)[0]

    def uncertainty(self, x: Any, task: Any = None) -> Uncertainty:
        """How much is in doubt about each answer, and what about: the data, or the weights."""
        _, total, epistemic = self._answers(x, task)
        return Uncertainty(total, total - epistemic, epistemic)

    def score(self, x: Any, y: Any, task: Any = None) -> float:
        """The share of right answers."""
        x, y = intake.pair(x, y)
        self._known().check_kind(y)
        return float(np.mean(self.predict(x, task) == y))

    def _answers(self, x: Any, task: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities in the order of `classes_`, entropy and mutual information."""
        run = self._learned()
        images = self.known_.inputs(intake.samples(x))
        pieces = self._pieces(task)
        answers = [self._answer(images, j) for j in pieces]
        chosen = least_in_doubt(answers).cpu().numpy()
        out = np.zeros((len(images), len(self.classes_)))
        doubts = np.zeros((2, len(images)))
        place = {label: i for i, label in enumerate(sorted(self.known_.labels))}
        for which, (j, answer) in enumerate(zip(pieces, answers, strict=True)):
            mine = chosen == which
            codes = run.scenario.columns(j if self.heads == "multi" else len(run.stages) - 1)
            columns = [place[self.known_.labels[code]] for code in codes]
            out[np.ix_(mine, columns)] = answer.probabilities.cpu().numpy()[mine]
            both = torch.stack([answer.entropy, answer.mutual_information]).cpu().numpy()
            doubts[:, mine] = both[:, mine]
        return out, *doubts

    def _learned(self) -> GrowingRun:
        if not hasattr(self, "run_"):
            raise RclCpbError("nothing is learned yet: call learn(x, y) first.")
        check_idle(self.run_.method)
        now = self.get_params()
        if odd := [name for name in now if now[name] != self.given_[name]]:
            raise RclCpbError(
                f"{', '.join(odd)}: set anew since the first task was learned; set it back, or"
                " learn anew with fit(x, y)."
            )
        return self.run_

    def _known(self) -> Known:
        self._learned()
        return self.known_

    def _pieces(self, task: Any) -> list[int]:
        """The pieces whose heads may answer: the last one of a task, or of every task."""
        names, last = self.known_.names, len(self.known_.names) - 1
        newest = {name: j for j, name in enumerate(names)}
        if task is not None and (isinstance(task, bool) or task not in names):
            raise RclCpbError(f"no task {task!r}: choose from {', '.join(map(str, newest))}.")
        if task is not None:
            return [newest[task]]
        if self.heads == "single":
            return [last]
        return list(newest.values())

    def _answer(self, images: np.ndarray, j: int) -> core.Prediction:
        """As a run answers for piece j in its last evaluation, draw for draw."""
        learner, scenario = self.run_.method, self.run_.scenario
        last = len(self.run_.stages) - 1
        if (last, j) not in self.nets_:
            self.nets_[last, j] = learner.net_for(j)
        x = scenario.inputs(images, scenario.tasks[j], learner.device)
        config, net, head = learner.config, self.nets_[last, j], learner.head(j)
        mirror = config.test_mirror and scenario.trunk
        with seeded(self.seed, last, "evaluate", j):
            return checks.finite(core.predict(net, x, head, config.test_samples, mirror))

    # ------------------------------------------------------------ what it is, and on disk

    def summary(self) -> str:
        """A line a piece, and what the network and its memory hold."""
        return summary(self._learned(), self.known_.labels)

    def save(self, path: str | Path) -> None:
        """All that is needed to answer and to learn on, the stored samples, too; and its card."""
        tensors, facts = self._learned().state()
        given = self.get_params() | {"config": (self.config or OWN_DATA).as_json()}
        more, known = self.known_.state()
        save_tensors(Path(path), tensors | more, facts | {"given": given, "known": known})
        words = {"summary": self.summary(), "file": Path(path).name}
        words |= {"reads": f"samples of shape {self.known_.shape}"}
        words |= {
            "classes": listed(self.classes_.tolist()),
            "stored": str(self.run_.method.stored()),
        }
        write_beside(Path(path), CLASSIFIER.format(**words))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """A classifier that `save` wrote; it answers and goes on as the other would."""
        tensors, facts = load_tensors(Path(path), "a kept classifier")
        try:
            given = facts["given"] | {"config": core.Config.from_json(facts["given"]["config"])}
            made = cls(**(given | {"device": device}))
            known, tasks = Known.of(tensors, facts["known"]), pieces(tensors, facts)
            run = made._new_run(tasks[0])
            run.restore(tasks, tensors, facts)
            made._have(run, known)
            check_whole(run, known.labels, known.names)
        except DAMAGE as error:
            raise RclCpbError(
                f"{path} is not a classifier of this version, or not for here ({plain(error)})."
            ) from error
        return made
