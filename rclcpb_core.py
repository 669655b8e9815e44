"""RCL-CPB: a Bayesian network that prunes and grows itself from task to task.

The method of *Robust Continual Learning through a Comprehensively Progressive Bayesian Neural
Network* (Guo, Wong and Ramasamy), in one module that reads top to bottom as the paper does:

    Config, Bayesian layers, the network, prediction
    Eq. 4 BayesLayer.snr, prune               Eq. 5 class_means, class_distances, shared_neurons
    Eq. 6 pruned_neurons                      Eq. 7 required_neurons, neurons_to_add, grow
    what is stored: choose_coreset            Eq. 8 eq8, adam, train_round
    Algorithm 1 Learner, from begin to end    Eq. 9 average_accuracy

Who reads only this file has read the method. Around it, in the folder rclcpb/, are images and
scenarios, the fast path of training, presets, the runner, tables and the command line, which
starts here, too: `python rclcpb_core.py --help`.

What the paper leaves open, and what is done here (more in the book's appendix):

* epochs, learning rates, batch size, optimiser (Adam), Monte Carlo samples: rclcpb/presets.py,
  found on validation data;
* "N(0, 0.1)" of mu: 0.1 is read as a deviation; beta "e^-5" is 10^-5;
* Eq. 5: dist is the absolute difference of mean ReLU activations under the mean weights, over
  the classes of the new task (`distance_classes="task"`) or over all classes of the output
  layer, the old ones through the coreset ("seen");
* Eq. 6: the constant is 1; Eq. 7: a negative alpha is 0; alpha_req is n_init times the
  geometric mean of the task's input-size ratio and class-count ratio to task 1;
* pruning looks at the hidden layers' weights; biases, convolutions and heads stay;
* a re-initialised or new weight gets task 1's prior, N(0, prior_var);
* replay starts from the posterior it finds, takes that as its prior, and its KL has a weight of
  its own (`replay_kl`, 0 drops it); in single-head scenarios what replay learned goes on to the
  next task, in multi-head ones it serves one evaluation only.
"""

from __future__ import annotations

if __name__ == "__main__":  # as a command: this file is imported once, under its own name
    from rclcpb.cli import main

    main()
    raise SystemExit

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb import checks, fast, method
from rclcpb.coreset import CHOICES, by_class, leaving_one
from rclcpb.distort import Distortion
from rclcpb.draws import sampled_logits
from rclcpb.files import RclCpbError
from rclcpb.kept import NUMBERS, KeptLayer, KeptNetwork
from rclcpb.method import Phase, Round, Samples, Shape, batches, seeded
from rclcpb.metrics import utilisation
from rclcpb.resume import Resumable
from rclcpb.scenarios import Scenario, Task
from rclcpb.settings import Settings

samples = method.samples  # a task's data: a notebook needs one import
VERSION = 1  # of the method: one more when a golden run ends in other digits
CORE_SHA256 = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # as imported


# ------------------------------------------------------------------------ configuration


class LayerSettings(NamedTuple):
    """What a layer has to know; the fields of Config with the same names."""

    mu_init: str
    mu_scale: float
    rho_init: float
    prior_var: float
    sampling: str
    new_into_old: str = "random"


@dataclass(frozen=True)
class Config(Settings):
    """Everything a run of RCL-CPB depends on besides its scenario and seed."""

    # the network
    hidden: tuple[int, ...] = (128, 128)  #: paper: neurons a layer at task 1, n_init
    mu_init: Literal["normal", "fan-in"] = "normal"  #: paper: normal; fan-in (He) is ours
    mu_scale: float = 0.1  #: paper: N(0, 0.1); only for mu_init="normal"
    rho_init: float = -6.0  #: paper: -6 or -3; sigma = exp(rho / 2)
    prior_var: float = 1.0  #: ours (VCL's): task 1's prior is N(0, prior_var)
    sampling: Literal["weight", "local"] = "weight"  #: paper: weight; local is ours
    # structure
    prune: bool = True  #: paper; False with grow=False is VCL (-AP)
    grow: bool = True  #: paper; False is the ablation -A
    beta: tuple[float, ...] = (1e-5,)  #: paper: SNR threshold, one or one a hidden layer
    gamma: tuple[float, ...] = (0.1,)  #: paper: distance threshold, one or one a layer
    distance_classes: Literal["task", "seen"] = "task"  #: ours: which classes Eq. 5 pairs
    new_into_old: Literal["random", "zero", "none"] = "random"  #: paper: random; the rest is ours
    # stored samples
    coreset: int = 40  #: paper: samples stored a task
    coreset_choice: Literal["random", "balanced", "medoids"] = "random"  #: paper: random
    stored_targets: Literal["labels", "answers"] = "labels"  #: answers, the network's, are ours
    # single head: the paper's three strategies
    reinit_head: bool = True  #: paper: fresh output layer before task t
    restore_head: bool = True  #: paper: old classes' rows come back after training
    replay: bool = True  #: paper: fit the whole coreset (multi-head: at evaluation)
    replay_newest: bool = True  #: paper: multi-head, also for the task just learned
    # training: all ours, the paper gives none of it
    epochs: int = 10  #: ours: passes over a task's data
    batch_size: int = 256  #: ours
    optimiser: Literal["adam", "natural"] = "adam"  #: ours: natural divides by the precision
    lr_mu: float = 1e-3  #: ours: rate for the means; natural: about 0.02
    lr_rho: float = 1e-3  #: ours: and for the widths
    decay: bool = False  #: ours: both rates fall linearly towards 0 within each fit
    kl_weight: float = 1.0  #: 1 is Eq. 8; smaller, ours, tempers the posterior
    prior_strength: float = 1.0  #: 1 is Bayes; how often an older task counts in the next
    replay_steps: int = 100  #: ours
    replay_epochs: int = 0  #: ours: n passes over what is stored, in place of steps
    replay_batch: int = 256  #: ours
    replay_lr: float = 1e-3  #: ours
    replay_kl: float = 0.0  #: ours: the KL's weight in replay
    replay_mix: int = 0  #: ours: stored images added to each of the task's batches
    distort: Distortion = "none"  #: ours: of stored images
    augment: Distortion = "none"  #: ours: of training images
    test_samples: int = 10  #: ours: Monte Carlo samples a prediction
    test_mirror: bool = False  #: ours: half of them see colour images mirrored

    RETIRED: ClassVar = {"replay_views": (0,), "coreset_only": (False, True)}
    POSITIVE: ClassVar = (
        *("hidden", "epochs", "batch_size", "replay_batch", "test_samples"),
        *("prior_var", "prior_strength", "lr_mu", "lr_rho", "replay_lr", "mu_scale"),
    )
    NOT_NEGATIVE: ClassVar = (
        *("beta", "gamma", "coreset", "replay_steps", "replay_epochs", "replay_mix"),
        *("kl_weight", "replay_kl"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta", "gamma"):
            if len(value := getattr(self, name)) not in (1, len(self.hidden)):
                raise RclCpbError(
                    f"{name} has {len(value)} values for {len(self.hidden)} hidden"
                    " layers: give one for all or one for each."
                )
        if self.grow and not self.prune:
            raise RclCpbError("grow=True needs prune=True; VCL is grow=False, prune=False.")
        if self.optimiser == "natural" and not self.kl_weight:
            raise RclCpbError("optimiser=natural needs a kl_weight above 0.")
        if self.replay_mix and not self.coreset:
            raise RclCpbError("replay_mix needs a coreset above 0.")

    def threshold(self, name: Literal["beta", "gamma"], layer: int) -> float:
        values: tuple[float, ...] = getattr(self, name)
        return values[layer % len(values)]

    def layer_settings(self) -> LayerSettings:
        return LayerSettings(*(getattr(self, name) for name in LayerSettings._fields))


# ---------------------------------------------------------------------- Bayesian layers


class BayesLayer(KeptLayer):
    """Weights and biases as independent Gaussians q = N(mu, exp(rho)).

    `mu`, `rho`, `prior_mu` and `prior_rho` are one vector each, the weights first and then the
    biases, so that the fast path can lay all layers end to end. A new kind of layer says how it
    computes (`operate`), what follows it (`activate`) and, if it is followed by layers of
    another kind, how many of their columns one of its units has (`unit` of that layer).
    """

    mu: Tensor
    rho: Tensor
    prior_mu: Tensor
    prior_rho: Tensor
    closed_form = False  # x W' + b, then a ReLU: rclcpb/fast.py has its backward
    local = False  # the noise is drawn for the outputs
    places: Tensor | None = None  # of the numbers in a whole matrix, if some are not there

    def __init__(self, weight_shape: tuple[int, ...], settings: LayerSettings) -> None:
        super().__init__()
        self.settings, self.shape, self.unit = settings, weight_shape, 1
        for name, value in self.fresh(weight_shape).items():
            if name in ("mu", "rho"):
                setattr(self, name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def fresh(self, shape: tuple[int, ...], device: Any = None) -> dict[str, Tensor]:
        """A new posterior and task 1's prior for weights and biases of this shape."""
        settings, fan_in = self.settings, math.prod(shape[1:])
        he = settings.mu_init == "fan-in"
        deviation = math.sqrt(2 / fan_in) if he else settings.mu_scale
        number = math.prod(shape) + shape[0]
        mu = deviation * torch.randn(number, device=device, dtype=torch.float32)
        if he:
            mu[-shape[0] :] = 0
        return {
            "mu": mu,
            "rho": torch.full_like(mu, settings.rho_init),
            "prior_mu": torch.zeros_like(mu),
            "prior_rho": torch.full_like(mu, math.log(settings.prior_var)),
        }

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """A vector like mu as (weights in their shape, biases)."""
        out = self.shape[0]
        return vector[:-out].view(self.shape), vector[-out:]

    def weights(self, vector: Tensor) -> Tensor:
        """The weights alone of a vector like mu."""
        return self.split(vector)[0]

    def prepare(self, x: Tensor) -> Tensor:
        """The form of input that `operate` wants."""
        return x

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        raise NotImplementedError

    def activate(self, x: Tensor) -> Tensor:
        """What follows a hidden layer."""
        return F.relu_(x)

    def per_unit(self, x: Tensor) -> Tensor:
        """Activations (B, units): one number a neuron or channel."""
        return x.flatten(2).mean(2) if x.dim() > 2 else x

    def draw(self) -> Tensor:
        """The reparameterisation trick: w = mu + sigma * eps."""
        return self.mu + (self.rho / 2).exp() * torch.randn_like(self.mu)

    def forward(self, x: Tensor) -> Tensor:
        """The layer under one draw of its weights."""
        return self.operate(x, *self.split(self.draw()))

    def mean(self, x: Tensor) -> Tensor:
        """The layer under the means of its weights."""
        return self.operate(x, *self.split(self.mu))

    def kl(self) -> Tensor:
        """KL(q || prior) in closed form, summed over the weights (Eq. 8)."""
        ratio = (self.rho - self.prior_rho).exp()
        distance = (self.mu - self.prior_mu) ** 2 / self.prior_rho.exp()
        return 0.5 * (ratio + distance - 1 - (self.rho - self.prior_rho)).sum()

    def snr(self) -> Tensor:
        """|mu| / sigma of every weight (Eq. 4), in the weights' shape."""
        return self.weights(self.mu.abs() / (self.rho / 2).exp())

    def posterior_becomes_prior(self, strength: float = 1.0) -> None:
        """q_{t-1} is the prior of task t; the precision it gained may count more than once."""
        self.prior_mu = self.mu.detach().clone()
        if strength != 1:
            old, new = (-self.prior_rho).exp(), (-self.rho.detach()).exp()
            self.rho.data = -(new + (strength - 1) * (new - old).clamp_min(0)).log()
        self.prior_rho = self.rho.detach().clone()

    def reinitialise(self, mask: Tensor) -> None:
        """Fresh posterior and prior where mask (weights' shape), the rest untouched."""
        mask = self.with_biases(mask)
        for name, new in self.renewed().items():
            self.assign(name, torch.where(mask, new, getattr(self, name).detach()))

    def with_biases(self, mask: Tensor) -> Tensor:
        """A mask of weights as one of all numbers, False for the biases."""
        return torch.cat([mask.flatten(), mask.new_zeros(self.shape[0])])

    def renewed(self) -> dict[str, Tensor]:
        """The numbers of a new layer of this form."""
        return self.fresh(self.shape, self.mu.device)

    def grow(self, extra_out: int = 0, extra_in: int = 0, zero: bool = False) -> None:
        """Add units and columns for new input units; old entries stay bit for bit.

        New entries are fresh. zero=True puts the means from new inputs into old outputs at 0,
        so that the layer computes what it did.
        """
        n_out, n_in = self.shape[:2]
        shape = (n_out + extra_out, n_in + extra_in * self.unit, *self.shape[2:])
        grown = self.fresh(shape, self.mu.device)
        for name, new in grown.items():
            weight, bias = new[: -shape[0]].view(shape), new[-shape[0] :]
            if zero and name == "mu":
                weight[:n_out, n_in:] = 0
            weight[:n_out, :n_in], bias[:n_out] = self.split(getattr(self, name).detach())
        self.shape = shape
        for name, new in grown.items():
            self.assign(name, new)


class BayesLinear(BayesLayer):
    """A fully connected layer; sampling="local" draws the noise for its outputs."""

    closed_form = True

    def __init__(self, n_in: int, n_out: int, settings: LayerSettings, unit: int = 1) -> None:
        super().__init__((n_out, n_in), settings)
        self.local, self.unit = settings.sampling == "local", unit

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : self.shape[1]]  # (B, n_in): an old head need not read all

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    def keep_units(self, units: int) -> int:
        """Become the first units alone; how many inputs these read."""
        for name in NUMBERS:
            weight, bias = self.split(getattr(self, name).detach())
            self.assign(name, torch.cat([weight[:units].flatten(), bias[:units]]))
        self.shape = (units, self.shape[1])
        return self.shape[1]

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Exact mean and variance of the outputs (n_out, B) for inputs x (B, n_in)."""
        weight, bias = self.split(self.mu)
        spread, bias_spread = self.split(self.rho.exp())
        mean = torch.addmm(bias[:, None], weight, x.t())
        return mean, torch.addmm(bias_spread[:, None], spread, (x * x).t())

    def forward(self, x: Tensor) -> Tensor:
        if not self.local:
            return super().forward(x)
        mean, variance = (moment.t() for moment in self.moments(x))  # (B, n_out)
        return mean + variance.sqrt() * torch.randn_like(mean)


class BayesConv2d(BayesLayer):
    """A 3 x 3 convolution that keeps the size; one weight sample serves a batch."""

    def __init__(self, n_in: int, n_out: int, settings: LayerSettings) -> None:
        super().__init__((n_out, n_in, 3, 3), settings)

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, padding=1)

    def activate(self, x: Tensor) -> Tensor:
        return F.relu_(F.max_pool2d(x, 2))  # either order is the same, this one has less to do


class BayesStairs(BayesLinear):
    """A linear layer whose old units never read new inputs: such weights are not there.

    `steps` are (units, inputs they read), the oldest first; each has the numbers of a whole
    layer, behind those of the steps before it. `places` are theirs in the whole matrix.
    """

    places: Tensor
    steps: list[tuple[int, int]]

    def __init__(self, n_in: int, n_out: int, settings: LayerSettings, unit: int = 1) -> None:
        super().__init__(n_in, n_out, settings, unit)
        self.set_form(self.shape, [(n_out, n_in)])

    def set_form(self, shape: tuple[int, ...], steps: list[tuple[int, int]] | None) -> None:
        self.shape, self.steps = shape, steps or []
        n_out, n_in = shape
        numbers = torch.arange(n_out * n_in + n_out, device=self.mu.device)
        matrix, biases = numbers[:-n_out].view(n_out, n_in), numbers[-n_out:]
        places, start = [], 0
        for units, reads in self.steps:
            rows = slice(start, start + units)
            places += [matrix[rows, :reads].flatten(), biases[rows]]
            start += units
        self.places = torch.cat(places)

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The whole matrix, 0 where nothing is, and the biases."""
        whole = vector.new_zeros(math.prod(self.shape) + self.shape[0])
        return super().split(whole.index_copy(0, self.places, vector))

    def weights(self, vector: Tensor) -> Tensor:
        """Those that are there, in a row."""
        return vector[self.places < math.prod(self.shape)]

    def with_biases(self, mask: Tensor) -> Tensor:
        every = self.places < math.prod(self.shape)
        return every.masked_scatter(every, mask)

    def renewed(self) -> dict[str, Tensor]:
        parts = [self.fresh(step, self.mu.device) for step in self.steps]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def grow(self, extra_out: int = 0, extra_in: int = 0, zero: bool = False) -> None:
        step = extra_out, self.shape[1] + extra_in * self.unit
        if extra_out:
            for name, new in self.fresh(step, self.mu.device).items():
                self.assign(name, torch.cat([getattr(self, name).detach(), new]))
        steps = self.steps + [step] * bool(extra_out)
        self.set_form((self.shape[0] + extra_out, step[1]), steps)

    def keep_units(self, units: int) -> int:
        ends = accumulate(n for n, _ in self.steps)
        kept = [step for step, end in zip(self.steps, ends, strict=True) if end <= units]
        numbers = sum(n * (reads + 1) for n, reads in kept)
        for name in NUMBERS:
            self.assign(name, getattr(self, name).detach()[:numbers])
        self.set_form((units, kept[-1][1]), kept)
        return self.shape[1]


# -------------------------------------------------------------------------- the network

TRUNK = (16, 32)  # paper: channels of the two convolutions
Act: TypeAlias = Callable[[Any, Tensor], Tensor]  # what a layer does with its input


def drawn(layer: BayesLayer, x: Tensor) -> Tensor:
    """A layer acts under one draw of its weights."""
    return layer(x)


def by_means(layer: BayesLayer, x: Tensor) -> Tensor:
    """A layer acts under the means of its weights."""
    return layer.mean(x)


class ProgressiveBNN(KeptNetwork):
    """An optional convolutional trunk, hidden layers that grow, and heads."""

    def __init__(
        self,
        image_shape: Shape,
        hidden: Sequence[int],
        settings: LayerSettings,
        trunk: bool = False,
    ) -> None:
        super().__init__()
        self.image_shape, self.settings = image_shape, settings
        channels, height, width = image_shape
        self.trunk, self.heads = nn.ModuleList(), nn.ModuleList()
        for out in TRUNK if trunk else ():
            self.trunk.append(BayesConv2d(channels, out, settings))
            channels, height, width = out, height // 2, width // 2
        self.hidden, unit = nn.ModuleList(), height * width  # columns of a channel
        n_in, kind = channels * unit, BayesLinear  # the first one reads no new neuron
        for n_out in hidden:
            self.hidden.append(kind(n_in, n_out, settings, unit))
            n_in, unit = n_out, 1
            kind = BayesStairs if settings.new_into_old == "none" else BayesLinear

    @property
    def device(self) -> torch.device:
        return self.hidden[0].mu.device

    @property
    def body(self) -> list[BayesLayer]:
        """All layers before the heads, in order."""
        return [*self.trunk, *self.hidden]

    @property
    def growable(self) -> list[BayesLayer]:
        """The layers that are pruned and grown: paper, the fully connected ones."""
        return [*self.hidden]

    def sizes(self) -> list[int]:
        return [layer.shape[0] for layer in self.growable]

    def add_head(self, classes: int) -> None:
        head = BayesLinear(self.hidden[-1].shape[0], classes, self.settings)
        self.heads.append(head.to(self.device))

    def features(self, x: Tensor, act: Act, keep: list[Tensor] | None = None) -> Tensor:
        """From images to what a head reads; `act` says how each layer acts on its input."""
        for layer in self.body:
            x = layer.activate(act(layer, layer.prepare(x)))
            if keep is not None:
                keep.append(x)
        return x

    def forward(self, x: Tensor, head: int = 0, act: Act = drawn) -> Tensor:
        """Logits (B, classes) under one draw of the weights, or as `act` says."""
        reader: Any = self.heads[head]
        return act(reader, reader.prepare(self.features(x, act)))

    def activations(self, x: Tensor) -> list[Tensor]:
        """Each growable layer's activations (B, units) under the mean weights."""
        kept: list[Tensor] = []
        self.features(x, by_means, kept)
        pairs = zip(self.body, kept, strict=True)
        growable = set(self.growable)
        return [layer.per_unit(x) for layer, x in pairs if layer in growable]

    def seen_by(self, head: int) -> ProgressiveBNN:
        """What a head reads: all, or the network before neurons came that it does not read."""
        units = self.heads[head].shape[1]
        if units == self.hidden[-1].shape[0]:
            return self
        net = copy.deepcopy(self)
        for layer in reversed(list(net.hidden)):
            units = layer.keep_units(units)
        return net

    def kl(self) -> Tensor:
        return torch.stack([layer.kl() for layer in [*self.body, *self.heads]]).sum()

    def posterior_becomes_prior(self, strength: float = 1.0) -> None:
        for layer in [*self.body, *self.heads]:
            layer.posterior_becomes_prior(strength)


# --------------------------------------------------------------------------- prediction

CHUNK = 2**24  # numbers that the widest step of a prediction may hold
ANSWER_SAMPLES = 50  # of the answers that are stored with images


class Prediction(NamedTuple):
    probabilities: Tensor  #: (N, classes), the mean over Monte Carlo samples
    entropy: Tensor  #: of that mean: all uncertainty, in nats
    mutual_information: Tensor  #: what of it is about the weights


def logits(net: ProgressiveBNN, x: Tensor, head: int, samples: int) -> Tensor:
    """(M, B, classes): M draws of the weights; the fast path has the same distribution."""
    if fast.handles(net):
        return sampled_logits(net, x, head, samples)
    return torch.stack([net(x, head) for _ in range(samples)])


@method.full_precision()
@torch.no_grad()
def predict(
    net: ProgressiveBNN, x: Tensor, head: int = 0, samples: int = 10, mirror: bool = False
) -> Prediction:
    """Class probabilities from M weight samples, in chunks that bound the memory.

    With `mirror`, half of the samples (of two or more) see the images mirrored.
    """
    checks.prediction(net, x, head, samples, mirror)
    net = net.seen_by(head)
    pixels, flipped = math.prod(x.shape[2:]), samples // 2 if mirror else 0
    convolved = (layer.shape[0] * pixels for layer in net.trunk)
    widest = max(samples * net.heads[head].shape[0], *net.sizes(), *convolved)
    parts = []
    for piece in x.split(max(1, CHUNK // widest)):
        found = [logits(net, piece, head, samples - flipped)]
        if flipped:
            found.append(logits(net, piece.flip(-1), head, flipped))
        log_p = torch.cat([one.mT for one in found]).log_softmax(1)  # (M, classes, B)
        p = log_p.exp()
        average = p.mean(0)
        total = torch.special.entr(average).sum(0)
        parts.append((average.t(), total, total + (p * log_p).sum(1).mean(0)))
    return Prediction(*(torch.cat(part) for part in zip(*parts, strict=True)))


# ------------------------------------------------------------------ structure: Eqs. 4-7


def prune(net: ProgressiveBNN, config: Config) -> list[Tensor]:
    """Re-initialise the weights with SNR < beta (Eq. 4); delta_k, their number a layer."""
    checks.thresholds(net, config)
    deltas = []
    for k, layer in enumerate(net.growable):
        mask = layer.snr() < config.threshold("beta", k)
        layer.reinitialise(mask)
        deltas.append(mask.sum())
    return deltas


# images of a task from which Eq. 5's means are taken; with convolutions they cost more
MEANS_FROM, MEANS_FROM_TRUNK = 2048, 1024
MEANS_FROM_STORED = 1792  # and of the stored ones, if they count, too


@method.full_precision()
@torch.no_grad()
def class_means(net: ProgressiveBNN, x: Tensor, y: Tensor, classes: int) -> list[Tensor]:
    """phi of Eq. 5: mean activation (classes, neurons) of every hidden layer."""
    sums = [x.new_zeros(classes, n) for n in net.sizes()]
    chunk = 256 if net.trunk else 2048  # what fits the cache is twice as fast
    for xs, ys in zip(x.split(chunk), y.split(chunk), strict=True):
        for total, activation in zip(sums, net.activations(xs), strict=True):
            total.index_add_(0, ys, activation)
    counts = x.new_zeros(classes).index_add_(0, y, torch.ones_like(y).float())
    return [total / counts[:, None] for total in sums]


def class_distances(means: Tensor) -> Tensor:
    """Left side of Eq. 5: each neuron's mean |phi_i - phi_j| over pairs of classes."""
    tc = len(means)
    ordered = means.sort(0).values  # the i-th smallest is above i values and below the rest
    sign = 2 * torch.arange(tc, device=means.device) - (tc - 1)
    return 2 * (sign[:, None] * ordered).sum(0) / max(tc * (tc - 1), 1)


def shared_neurons(distances: Tensor, gamma: float) -> Tensor:
    """alpha_share: the neurons that tell the classes apart already (Eq. 5)."""
    return (distances > gamma).sum()


def pruned_neurons(delta: float, size_before: int) -> float:
    """alpha_prune: the pruned weights, counted in neurons of layer k (Eq. 6)."""
    return delta / size_before


def required_neurons(n_init: int, task: Task, first: Task) -> float:
    """alpha_req: n_init, scaled for another input size or number of classes."""
    ratio = (task.inputs / first.inputs) * (len(task.classes) / len(first.classes))
    return n_init * math.sqrt(ratio)


def neurons_to_add(required: float, shared: float, pruned: float) -> int:
    """alpha = alpha_req - (alpha_share + alpha_prune), never below 0 (Eq. 7)."""
    return max(0, round(required - (shared + pruned)))


def grow(
    net: ProgressiveBNN, alpha: Sequence[int], zero: bool = False, old_heads: bool = True
) -> None:
    """Add alpha_k units to growable layer k, and to the layer after it their columns.

    With old_heads=False the heads there are go without.
    """
    checks.growth(net, alpha)
    more = dict(zip(net.growable, alpha, strict=True))
    extra_in = 0
    for layer in net.body:
        extra = more.get(layer, 0)
        if extra_in or extra:
            layer.grow(extra, extra_in, zero)
        extra_in = extra
    for head in net.heads if old_heads else ():
        if extra_in:
            head.grow(0, extra_in, zero)


# ------------------------------------------------------------------------------ coreset


def choose_coreset(x: Tensor, y: Tensor, size: int, choice: str) -> Tensor:
    """Indices of the samples to store: at random, as in the paper, or as rclcpb/coreset.py can."""
    checks.coreset(x, y, size, choice, CHOICES)
    order = leaving_one(y, torch.randperm(len(x), device=x.device))
    return order[:size] if choice == "random" else by_class(x, y, size, order, choice == "medoids")


# ---------------------------------------------------------------------- training: Eq. 8


def eq8(
    net: ProgressiveBNN, layers: Sequence[BayesLayer], parts: Sequence[Samples], kl_weight: float
) -> tuple[Tensor, Tensor]:
    """Eq. 8 for a batch, its sign turned and divided by N: NLL under one draw, NLL + KL / N."""
    x = torch.cat([part.x for part in parts])
    features = net.features(x, drawn).split([len(part.y) for part in parts])
    nll = x.new_zeros(())
    for part, piece in zip(parts, features, strict=True):  # samples of one head
        head: Any = net.heads[part.head]
        targets = part.y if part.answers is None else part.answers
        nll = nll + F.cross_entropy(head(head.prepare(piece)), targets, reduction="sum") / len(x)
    return nll, nll + kl_weight * sum(layer.kl() for layer in layers)


class PlainPosterior:
    """The parameters of a fit and their gradients, as autograd has them from `eq8`."""

    def __init__(self, net: ProgressiveBNN, heads: Sequence[int]) -> None:
        self.net = net
        self.layers: list[BayesLayer] = [*net.body, *(net.heads[head] for head in heads)]
        self.mus = [layer.mu for layer in self.layers]
        self.rhos = [layer.rho for layer in self.layers]

    def new_round(self, steps: int, batch: int) -> None:
        """Nothing to prepare: each step draws its own noise."""

    def gradients(self, parts: Sequence[Samples], kl_weight: float) -> Tensor:
        """One draw: the batch's mean NLL; mu and rho get the gradients of Eq. 8."""
        for parameter in [*self.mus, *self.rhos]:
            parameter.grad = None
        nll, loss = eq8(self.net, self.layers, parts, kl_weight)
        loss.backward()
        return nll.detach()

    def kl(self) -> Tensor:
        return torch.stack([layer.kl().detach() for layer in self.layers]).sum()


Posterior: TypeAlias = PlainPosterior | fast.FlatPosterior


def adam(posterior: Posterior, lr_mu: float, lr_rho: float) -> torch.optim.Optimizer:
    """Adam, with a rate for the means and one for the widths."""
    groups = [{"params": posterior.mus, "lr": lr_mu}, {"params": posterior.rhos, "lr": lr_rho}]
    return torch.optim.Adam(groups, fused=posterior.mus[0].device.type in ("cpu", "cuda"))


class Natural(torch.optim.Optimizer):
    """Natural-gradient steps: Eq. 8's gradients, divided by the posterior's Fisher information.

    That of N(mu, v), v = exp(rho), is 1 / v in mu and 1 / 2 in rho. So a mean moves in units
    of its own variance: what the posterior is sure of hardly moves, the rest moves freely.
    """

    MOMENTUM, LONGEST = 0.9, 0.3  # of the means' gradients; of a step before its rate

    def __init__(self, posterior: Posterior, lr_mu: float, lr_rho: float, kl_weight: float) -> None:
        super().__init__(posterior.mus, {"lr": lr_mu})
        self.rhos, self.first_rate, self.kl_weight = posterior.rhos, lr_rho, kl_weight

    @torch.no_grad()
    def step(self) -> None:
        (means,) = self.param_groups
        for mu, rho in zip(means["params"], self.rhos, strict=True):
            state: Any = self.state[mu] or {"step": torch.zeros(()), "mean": torch.zeros_like(mu)}
            self.state[mu] = state
            state["step"] += 1
            gradient = state["mean"].lerp_(mu.grad, 1 - self.MOMENTUM)
            started = 1 - self.MOMENTUM ** state["step"].item()  # the mean began at 0
            rate = 1 / (state["step"].item() + 1 / self.first_rate)  # a running mean of curvature
            rho -= (rho.grad * (2 * rate / self.kl_weight)).clamp_(-1, 1)
            step = (gradient * rho.exp()).div_(self.kl_weight * started)
            mu -= step.clamp_(-self.LONGEST, self.LONGEST).mul_(means["lr"])


def new_optimizer(posterior: Posterior, phase: Phase, kind: str) -> torch.optim.Optimizer:
    """A fit's own: shapes have changed, and old moments belong to the old task."""
    if kind == "natural" and phase.kl_weight:  # without KL no precision
        return Natural(posterior, phase.lr_mu, phase.lr_rho, phase.kl_weight)
    return adam(posterior, phase.lr_mu, phase.lr_rho)


def train_round(
    posterior: Posterior,
    optimizer: torch.optim.Optimizer,
    data: Samples,
    phase: Phase,
    steps: int,
    shape: Shape,
    stored: Sequence[Samples] = (),
) -> Tensor:
    """`steps` steps down the gradient of Eq. 8; the mean NLL on the way.

    With `stored` sets, as many images as the phase mixes in, of one of them, join each batch.
    """
    device = data.y.device
    total = data.x.new_zeros(())
    posterior.new_round(steps, min(phase.batch, len(data.y)) + (phase.mixed if stored else 0))
    for index in batches(len(data.y), phase.batch, steps, device):
        parts = [data.take(index, shape, phase.augment)]
        if stored:
            old = stored[int(torch.randint(len(stored), ()))]
            index = torch.randint(len(old.y), (phase.mixed,), device=device)
            parts = method.joined(parts[0], old.take(index, shape, phase.distort))
        total += posterior.gradients(parts, phase.kl_weight)
        optimizer.step()
    return total / steps


# -------------------------------------------------------------------------- Algorithm 1


class Learner(Resumable):
    """Algorithm 1.

    `net` is the network as it stands, `coreset` the stored samples of each task, `start` a
    trained network to go on from (its heads stay behind: the tasks here have their own).
    """

    config: Config
    takes = Config

    def __init__(
        self,
        scenario: Scenario,
        config: Config,
        seed: int = 0,
        device: Any = "cpu",
        start: ProgressiveBNN | None = None,
    ) -> None:
        super().__init__(scenario, config, seed, device)
        self.check()
        self.image_shape = scenario.image_shape()
        self.chosen: list[Tensor] = []  # of each task's samples, those that are stored
        self.coreset: list[Samples] = []
        self.learned = 0  # tasks
        self.started = start is not None
        self.kept_head: BayesLinear | None = None  # a single head before it was widened
        self.under_way: dict[str, Any] = {}  # a fit between two of its rounds
        self.structure: dict[str, Any] = {"pruned": [], "shared": [], "added": []}
        with seeded(self.seed, "network"):
            self.net = self.new_network(config.hidden)
        self.n_init = self.net.sizes()
        if start is not None:
            self.net = self.body_of(start)

    def new_network(self, hidden: Sequence[int]) -> ProgressiveBNN:
        settings, trunk = self.config.layer_settings(), self.scenario.trunk
        return ProgressiveBNN(self.image_shape, hidden, settings, trunk).to(self.device)

    def head(self, t: int) -> int:
        return t if self.scenario.heads == "multi" else 0

    def store(self, t: int, data: Samples) -> Samples:
        """Append CT_t to the coreset; what is stored is not in the training data."""
        if t == len(self.chosen):
            with seeded(self.seed, t, "coreset"):
                size, choice = self.config.coreset, self.config.coreset_choice
                self.chosen.append(choose_coreset(data.x, data.y, size, choice))
        self.coreset[t:] = [data.rows(self.chosen[t])]  # without answers, which end(t) adds
        rest = torch.ones(len(data.y), dtype=torch.bool, device=self.device)
        rest[self.chosen[t]] = False
        return data._replace(x=data.x[rest], y=data.y[rest])

    def begin(self, t: int, data: Samples) -> None:
        """The posterior becomes the prior; re-initialise, grow, open the output layer."""
        self.structure = {"pruned": [], "shared": [], "added": []}
        with seeded(self.seed, t, "structure"):
            if t > 0 or self.started:
                self.net.posterior_becomes_prior(self.config.prior_strength)
                self.restructure(t, data)
            self.kept_head = self.open_head(t)

    def fit(self, t: int, data: Samples) -> Iterator[Round]:
        """Update the posterior with D_t \\ CT_t and Eq. 8."""
        phase = Phase.training(self.config, len(data.y))
        stored = self.stored_sets(t) if phase.mixed and t else []
        fit = self.rounds(self.net, t, phase, data, stored, self.under_way)
        for done, nll, posterior, optimizer in fit:
            kl = posterior.kl().item()
            self.check_finite(t, phase, done, nll, kl)
            self.under_way = {"rounds": done, "moments": optimizer}
            yield Round(done, len(phase.rounds), nll, kl)
        self.under_way = {}

    def end(self, t: int) -> None:
        """Single head: restore the old classes' outputs, then update with all of CT."""
        if self.scenario.heads == "single":
            if self.kept_head is not None and self.config.restore_head:
                self.restore_rows(self.kept_head)
            if self.config.replay and self.config.coreset:
                (everything,) = self.stored_sets(t + 1)
                self.replay(self.net, t, "replay", everything)
        self.kept_head, self.learned = None, t + 1
        if self.config.stored_targets == "answers" and self.config.coreset:
            with seeded(self.seed, t, "answers"):
                said = predict(self.net, self.coreset[t].x, self.head(t), ANSWER_SAMPLES)
            self.coreset[t] = self.coreset[t]._replace(answers=said.probabilities)

    def answer(self, j: int, x: Tensor) -> Tensor:
        mirror = self.config.test_mirror and self.scenario.tasks[j].mirror and self.scenario.trunk
        net, count = self.net_for(j), self.config.test_samples
        return predict(net, x, self.head(j), count, mirror).probabilities

    def notes(self) -> dict[str, Any]:
        used = utilisation(self.net, self.config)
        return self.structure | {"hidden": self.net.sizes(), "utilisation": used}

    # the steps of the above

    def restructure(self, t: int, data: Samples) -> None:
        """Re-initialise what does nothing, add what cannot be borrowed (Eqs. 4-7)."""
        config, net, notes = self.config, self.net, self.structure
        if config.prune:
            notes["pruned"] = [int(delta) for delta in prune(net, config)]
        if not config.grow:
            return
        task, first = self.scenario.tasks[t], self.scenario.tasks[0]
        for k, means in enumerate(self.task_means(t, data)):
            gamma = config.threshold("gamma", k)
            shared = int(shared_neurons(class_distances(means), gamma))
            required = required_neurons(self.n_init[k], task, first)
            columns = math.prod(net.growable[k].shape[1:])
            pruned = pruned_neurons(notes["pruned"][k], columns)
            notes["shared"].append(shared)
            notes["added"].append(neurons_to_add(required, shared, pruned))
        old_heads = config.new_into_old != "none" or self.scenario.heads == "single"
        grow(net, notes["added"], config.new_into_old != "random", old_heads)

    def task_means(self, t: int, data: Samples) -> list[Tensor]:
        """Mean activations for the classes that Eq. 5 compares at task t.

        Of a large task, some images drawn at random, and of a large coreset, which was drawn
        so, every so many: a mean needs no more.
        """
        enough = MEANS_FROM_TRUNK if self.net.trunk else MEANS_FROM
        if len(data.y) > enough:
            data = data.rows(torch.randperm(len(data.y), device=self.device)[:enough])
        x, y = data.x, data.y
        if self.config.distance_classes == "seen" and self.scenario.heads == "single":
            old = self.coreset[:t]
            every = max(1, math.ceil(sum(len(s.y) for s in old) / MEANS_FROM_STORED))
            x = torch.cat([x, *(s.x[::every] for s in old)])
            y = torch.cat([y, *(s.y[::every] for s in old)])
        labels, index = y.unique(return_inverse=True)
        return class_means(self.net, x, index, len(labels))

    def open_head(self, t: int) -> BayesLinear | None:
        """A head for task t's classes; a single head's old output layer is returned."""
        net, columns = self.net, len(self.scenario.columns(t))
        if self.scenario.heads == "multi":
            while len(net.heads) <= t:  # a network that starts anew lacks the older ones
                net.add_head(len(self.scenario.columns(len(net.heads))))
            return None
        if not net.heads:
            net.add_head(columns)
            return None
        old = net.heads[0]
        if columns == old.shape[0]:
            return None
        kept = copy.deepcopy(old)
        if self.config.reinit_head:
            net.heads = nn.ModuleList()
            net.add_head(columns)
        else:
            old.grow(columns - old.shape[0])
        return kept

    @torch.no_grad()
    def restore_rows(self, kept: BayesLinear) -> None:
        """Old classes' output weights as they were after the last task's replay.

        A class that is in the task again keeps what it has just learned.
        """
        known, task = self.scenario.columns(self.learned), self.scenario.tasks[self.learned]
        rows = [r for r in range(kept.shape[0]) if known[r] not in task.classes]
        for name in ("mu", "rho"):
            parts = [head.split(getattr(head, name)) for head in (self.net.heads[0], kept)]
            for new, old in zip(*parts, strict=True):
                new[rows] = old[rows]

    def stored_sets(self, tasks: int) -> list[Samples]:
        """CT of the first tasks: one set a head."""
        stored, answers = self.coreset[:tasks], None
        if self.scenario.heads == "multi":
            return stored
        if self.config.stored_targets == "answers":
            answers = method.answers_of(stored, self.net.heads[0])
        x, y = torch.cat([s.x for s in stored]), torch.cat([s.y for s in stored])
        return [Samples(x, y, mirror=all(s.mirror for s in stored), answers=answers)]

    def net_for(self, j: int) -> ProgressiveBNN:
        """The network that answers for task j: in multi-head, a copy fitted on CT_j."""
        config, last = self.config, self.learned - 1
        asked_early = j > last or (j == last and not config.replay_newest)
        one_head = self.scenario.heads == "single"
        if one_head or asked_early or not (config.replay and config.coreset):
            return self.net
        net = copy.deepcopy(self.net)
        self.replay(net, last, f"fit {j}", self.coreset[j])
        return net

    def replay(self, net: ProgressiveBNN, t: int, name: str, data: Samples) -> None:
        """Fit stored samples from the posterior the network has, which is the prior."""
        net.posterior_becomes_prior()
        self.refit(net, t, name, data)

    def refit(self, net: ProgressiveBNN, t: int, name: str, data: Samples) -> None:
        """Eq. 8 over stored samples."""
        phase = Phase.replaying(self.config, len(data.y), name)
        for done, nll, posterior, _ in self.rounds(net, t, phase, data):
            last = done == len(phase.rounds)  # its KL costs as much as a step
            self.check_finite(t, phase, done, nll, posterior.kl().item() if last else 0.0)

    def rounds(
        self,
        net: ProgressiveBNN,
        t: int,
        phase: Phase,
        data: Samples,
        stored: Sequence[Samples] = (),
        resume: dict[str, Any] | None = None,
    ) -> Iterator[tuple[int, float, Posterior, torch.optim.Optimizer]]:
        """The optimiser on Eq. 8, from the posterior the network has, round after round."""
        heads = list(dict.fromkeys(part.head for part in [data, *stored]))
        kind = fast.FlatPosterior if fast.handles(net) else PlainPosterior  # the same gradients
        posterior: Posterior = kind(net, heads)
        optimizer = new_optimizer(posterior, phase, self.config.optimiser)
        rates = [group["lr"] for group in optimizer.param_groups]
        start = method.load_moments(optimizer, resume) if resume else 0
        for done in range(start, len(phase.rounds)):
            left = 1 - done / len(phase.rounds) if self.config.decay else 1
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = left * rate
            with seeded(self.seed, t, phase.name, done):
                steps, shape = phase.rounds[done], self.image_shape
                nll = train_round(posterior, optimizer, data, phase, steps, shape, stored)
            yield done + 1, nll.item(), posterior, optimizer


# -------------------------------------------------------- metrics: Eq. 9; networks on disk


def average_accuracy(accuracy: Sequence[Sequence[float]]) -> float:
    """Eq. 9: the mean over tasks after the last one."""
    return float(np.mean(accuracy[-1]))


def load(path: str | Path, device: Any = "cpu") -> ProgressiveBNN:
    """A network that a run kept, ready for `predict`; what is known of it is its `about`."""
    return ProgressiveBNN.load(path, LayerSettings, device)
