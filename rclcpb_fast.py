"""The fast path of training: Eq. 8 for all layers at once, on flat vectors.

The layers' plain formulas are in rclcpb_core.py and are what the book explains; this
file computes the same gradients with fewer passes over memory. It needs to be read by
nobody who only wants to understand the method.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from rclcpb_core import BayesLayer, ProgressiveBNN, Samples


def keep_freed_memory() -> None:
    """Tell glibc not to return freed memory: a step's buffers are the last step's.

    Without it every step's larger buffers come as new pages, which the system has to
    clear: a tenth of a convolutional run. Buffers above 32 MiB (images, not steps) are
    returned as ever; with other C libraries nothing changes.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3  # of malloc.h
    with suppress(AttributeError, TypeError):  # no mallopt; on Windows no CDLL(None)
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(m_mmap_threshold, 2**25)
        mallopt(m_trim_threshold, 2**30)


def drawn_linear(
    x: Tensor, mean: Any, variance: Any, noise: Tensor | None, out: Any, first: bool
) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
    """x W' + b + sqrt(x^2 V' + v) * eps, the noise term if eps is given; its backward.

    The backward takes the result's gradient, writes those of W and b and twice those of
    V and v to `out`, slices of the flat gradients (autograd would copy and add them),
    and returns the gradient at the ReLU that x comes from; a first layer's x has none.
    """
    (weight, bias), (spread, bias_spread) = mean, variance
    result = torch.addmm(bias, x, weight.t())
    if noise is not None:
        squared = x * x
        deviation = torch.addmm(bias_spread, squared, spread.t()).sqrt_()
        result.addcmul_(deviation, noise)

    def backward(g: Tensor) -> Tensor | None:
        torch.mm(g.t(), x, out=out[0])
        torch.sum(g, 0, out=out[1])
        back = None if first else torch.mm(g, weight)
        if noise is not None:
            g = (g * noise).div_(deviation)  # twice the variance's gradient
            torch.mm(g.t(), squared, out=out[2])
            torch.sum(g, 0, out=out[3])
            if back is not None:
                back.addcmul_(torch.mm(g, spread), x)
        return None if back is None else back.mul_(x.sign())

    return result, backward


class FlatPosterior:
    """The fast path: the layers' parameters as four long vectors, trained as one.

    Convolutions are left to autograd, linear layers have their backward written out,
    both for the drawn weights; the chain rule from there to mu and rho and the gradient
    of the KL are a few closed-form passes over the vectors:

        w = mu + sigma eps:     d/dmu = d/dw,    d/drho = d/dw * eps * sigma / 2
        local, v = exp(rho):                     d/drho = d/dv * v
        KL:  d/dmu = (mu - prior_mu) / prior_v,  d/drho = (v / prior_v - 1) / 2

    tests/test_training.py holds it equal to autograd on the layers' plain formulas. The
    noise of a step is a slice, at a random place, of a pool of normals that is drawn
    anew every epoch: each step's noise is independent standard normal; only two steps
    may share numbers, and then for other weights.
    """

    POOL = 4  # the pool is this many times what one step needs

    def __init__(self, net: ProgressiveBNN, heads: Sequence[int], trunk: bool = True) -> None:
        """trunk=False leaves convolutions alone and takes their features as inputs."""
        self.net, self.heads = net, {head: i for i, head in enumerate(heads)}
        self.trunk = [*net.trunk] if trunk else []
        body = [*self.trunk, *net.hidden]
        self.layers: list[BayesLayer] = [*body, *(net.heads[head] for head in heads)]
        self.body, self.local = len(body), net.config.sampling == "local"
        sizes = [len(layer.mu) for layer in self.layers]
        mu, rho, self.prior_mu, prior_rho = (
            self._join(name, sizes) for name in ("mu", "rho", "prior_mu", "prior_rho")
        )
        self.precision = (-prior_rho).exp()  # of the prior
        self.mu, self.rho = nn.Parameter(mu), nn.Parameter(rho)
        self.mu.grad, self.rho.grad = torch.zeros_like(mu), torch.zeros_like(mu)
        trunk_end, heads_start = sum(sizes[: len(self.trunk)]), sum(sizes[: self.body])
        self.drawn = trunk_end if self.local else len(mu)
        self.weights = torch.empty_like(mu)  # mu + sigma eps, as far as they are drawn
        self.scale = torch.empty_like(mu)  # sigma of these, the variance of the others
        self.minus_one = -torch.ones((), device=mu.device)
        gradients = self.mu.grad, self.rho.grad
        self.added_to = [
            gradients[0][:trunk_end],
            *(g[heads_start:] for g in gradients),
        ]
        vectors = (mu, self.weights, self.scale, *gradients)
        views = zip(*(vector.split(sizes) for vector in vectors), strict=True)
        self.pieces = list(map(self._pieces, self.layers, views))
        self.starts: Iterator[int] = iter(())
        self.place = 0
        self.tape: list[Callable[[Tensor], Tensor | None]] = []

    def _join(self, name: str, sizes: list[int]) -> Tensor:
        """One vector of all layers' `name`, of which the layers' own become views."""
        joined = torch.cat([getattr(layer, name).detach() for layer in self.layers])
        for layer, piece in zip(self.layers, joined.split(sizes), strict=True):
            getattr(layer, name).data = piece
        return joined

    def _pieces(self, layer: BayesLayer, views: Sequence[Tensor]) -> Any:
        """A layer's means and variances, and where their gradients go."""
        mu, weights, scale, g_mean, g_variance = map(layer.split, views)
        if len(layer.shape) == 2:
            return mu if self.local else weights, scale, (*g_mean, *g_variance)
        weights = tuple(view.detach().requires_grad_() for view in weights)
        for view, gradient in zip(weights, g_mean, strict=True):
            view.grad = gradient  # autograd adds to it, and so into our vector
        return weights, scale, ()

    def new_pool(self, steps: int, batch: int) -> None:
        """Draw the normals from which the coming steps take their noise."""
        outputs = sum(layer.shape[0] for layer in self.layers[len(self.trunk) :])
        need = self.drawn + (batch * outputs if self.local else 0)
        self.pool = torch.randn(self.POOL * need, device=self.mu.device)
        starts = torch.randint((self.POOL - 1) * need // 16 + 1, (steps,))
        self.starts = iter((16 * starts).tolist())  # aligned slices are read faster

    def noise(self, shape: Sequence[int]) -> Tensor:
        """The step's next standard normals: a slice of the pool."""
        start, self.place = self.place, self.place + math.prod(shape)
        return self.pool[start : self.place].view(*shape)

    @torch.no_grad()
    def draw(self) -> None:
        """The step's sigma and weights, or variances where the noise is local."""
        n, self.place = self.drawn, next(self.starts)
        if n:
            self.eps = self.noise((n,))
            torch.mul(self.rho[:n], 0.5, out=self.scale[:n]).exp_()
            torch.addcmul(self.mu[:n], self.scale[:n], self.eps, out=self.weights[:n])
        if self.local:
            torch.exp(self.rho[n:], out=self.scale[n:])

    def _linear(self, i: int, x: Tensor) -> Tensor:
        """Linear layer i under the drawn weights; its backward joins the tape."""
        mean, variance, out = self.pieces[i]
        noise = self.noise((len(x), len(mean[1]))) if self.local else None
        result, backward = drawn_linear(x, mean, variance, noise, out, first=i == 0)
        self.tape.append(backward)
        return result

    def _features(self, x: Tensor) -> Tensor:
        """The network's features(), in place, and pooled before the ReLU: a quarter."""
        for i, layer in enumerate(self.trunk):
            x = F.relu_(x) if i else x
            x = F.max_pool2d(layer.operate(x, *self.pieces[i][0]), 2)
        x = x.flatten(1)
        if self.trunk:  # for autograd; the ReLU is in the next layer's backward
            self.tape.append(x.backward)
            x = F.relu_(x.detach())
        for i in range(len(self.trunk), self.body):
            x = F.relu_(self._linear(i, x))
        return x

    def loss(self, parts: Sequence[Samples], kl_weight: float) -> Tensor:
        """One draw: the batch's mean NLL; mu and rho get the gradients of Eq. 8.

        The parts of a batch are samples of different heads.
        """
        for gradient in self.added_to:  # or, a head without samples, not written at all
            gradient.zero_()
        self.draw()
        x = parts[0].x if len(parts) == 1 else torch.cat([part.x for part in parts])
        pieces = self._features(x).split([len(part.y) for part in parts])
        nll, back = torch.zeros_like(self.minus_one), []
        for part, piece in zip(parts, pieces, strict=True):
            i, labels = self.body + self.heads[part.head], part.y[:, None]
            log_p = self._linear(i, piece).log_softmax(1)
            nll -= log_p.gather(1, labels).sum() / len(x)
            ones = self.minus_one.expand(labels.shape)
            g = log_p.exp_().scatter_add_(1, labels, ones)  # softmax - one-hot
            back.append(self.tape.pop()(g.div_(len(x))))
        g = back[0] if len(back) == 1 else torch.cat(back)
        while self.tape:
            g = self.tape.pop()(g)
        self._finish(self.mu.grad, self.rho.grad, kl_weight)
        return nll

    @torch.no_grad()
    def _finish(self, g_mu: Tensor, g_rho: Tensor, kl_weight: float) -> None:
        """From gradients of weights and variances to those of mu and rho; the KL's.

        The vectors outgrow the cache, so each pass counts: NLL and KL share theirs.
        """
        n, scale, precision = self.drawn, self.scale, self.precision
        if n:
            torch.mul(g_mu[:n], self.eps, out=g_rho[:n])
            g_rho[:n].addcmul_(scale[:n], precision[:n], value=kl_weight)
        if self.local:
            g_rho[n:].add_(precision[n:], alpha=kl_weight)
        offset = self.minus_one * (kl_weight / 2)
        torch.addcmul(offset, g_rho, scale, value=0.5, out=g_rho)
        distance = torch.sub(self.mu, self.prior_mu, out=scale)
        g_mu.addcmul_(distance, precision, value=kl_weight)

    def optimizer(self, lr_mu: float, lr_rho: float) -> torch.optim.Adam:
        """A new Adam: shapes have changed, and old moments belong to the old task."""
        groups = [
            {"params": [self.mu], "lr": lr_mu},
            {"params": [self.rho], "lr": lr_rho},
        ]
        return torch.optim.Adam(groups, fused=self.mu.device.type in ("cpu", "cuda"))

    def kl(self) -> Tensor:
        return torch.stack([layer.kl().detach() for layer in self.layers]).sum()
