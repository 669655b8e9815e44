"""The fast paths: Eq. 8's gradients for all layers at once, and many draws of a prediction.

The plain formulas are in rclcpb_core.py and are what the book explains; this file computes
the same numbers with fewer passes over memory. It needs to be read by nobody who only wants
to understand the method, and knows nothing of it but what a layer is: vectors `mu`, `rho`,
`prior_mu` and `prior_rho`, weights first, and `operate(x, weight, bias)`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(Protocol):
    """What this file needs of a layer; `closed_form` ones are x W' + b."""

    mu: Tensor
    rho: Tensor
    prior_mu: Tensor
    prior_rho: Tensor
    shape: tuple[int, ...]
    closed_form: bool
    local: bool  # its noise is drawn for the outputs

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]: ...
    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor: ...
    def activate(self, x: Tensor) -> Tensor: ...
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]: ...
    def kl(self) -> Tensor: ...


class Part(Protocol):
    """A batch's samples of one head."""

    @property
    def x(self) -> Tensor: ...
    @property
    def y(self) -> Tensor: ...
    @property
    def head(self) -> int: ...


def handles(net: Any) -> bool:
    """Can this file train the network? Layers in closed form must come last."""
    closed = [layer.closed_form for layer in net.body]
    return any(closed) and closed == sorted(closed)


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
    x: Tensor, mean: Any, variance: Any, noise: Tensor | None, out: Any, back_to: str
) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
    """x W' + b + sqrt(x^2 V' + v) * eps, the noise term if eps is given; its backward.

    The backward takes the result's gradient, writes those of W and b and twice those of
    V and v to `out`, slices of the flat gradients (autograd would copy and add them),
    and returns the gradient of what x comes from: a "relu" here, a "graph" of autograd,
    which has its own ReLU, or the "images", which need none.
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
        back = None if back_to == "images" else torch.mm(g, weight)
        if noise is not None:
            g = (g * noise).div_(deviation)  # twice the variance's gradient
            torch.mm(g.t(), squared, out=out[2])
            torch.sum(g, 0, out=out[3])
            if back is not None:
                back.addcmul_(torch.mm(g, spread), x)
        return back.mul_(x > 0) if back is not None and back_to == "relu" else back

    return result, backward


class FlatPosterior:
    """The layers' parameters as four long vectors, trained as one.

    Layers without a closed form (convolutions) are left to autograd, linear ones have their
    backward written out, both for the drawn weights; the chain rule from there to mu and rho
    and the gradient of the KL are a few closed-form passes over the vectors:

        w = mu + sigma eps:     d/dmu = d/dw,    d/drho = d/dw * eps * sigma / 2
        local, v = exp(rho):                     d/drho = d/dv * v
        KL:  d/dmu = (mu - prior_mu) / prior_v,  d/drho = (v / prior_v - 1) / 2

    The tests hold it equal to autograd on the plain formula. The noise of a step is a slice,
    at a random place, of a pool of normals that is drawn anew every round: each step's noise
    is independent standard normal; only two steps may share numbers, and then for other
    weights.
    """

    POOL = 4  # the pool is this many times what one step needs

    def __init__(self, net: Any, heads: Sequence[int]) -> None:
        self.net, self.heads = net, {net.heads[head]: i for i, head in enumerate(heads)}
        self.layers: list[Any] = [*net.body, *self.heads]
        self.places = {layer: i for i, layer in enumerate(self.layers)}
        self.graph_layers = sum(not layer.closed_form for layer in net.body)  # they come first
        self.local = self.layers[self.graph_layers].local
        sizes = [len(layer.mu) for layer in self.layers]
        mu, rho, self.prior_mu, prior_rho = (
            self._join(name, sizes) for name in ("mu", "rho", "prior_mu", "prior_rho")
        )
        self.precision = (-prior_rho).exp()  # of the prior
        self.mu, self.rho = nn.Parameter(mu), nn.Parameter(rho)
        self.mus, self.rhos = [self.mu], [self.rho]  # for the optimiser
        self.mu.grad, self.rho.grad = torch.zeros_like(mu), torch.zeros_like(mu)
        graph_end, heads_start = sum(sizes[: self.graph_layers]), sum(sizes[: len(net.body)])
        self.drawn = graph_end if self.local else len(mu)
        self.weights = torch.empty_like(mu)  # mu + sigma eps, as far as they are drawn
        self.scale = torch.empty_like(mu)  # sigma of these, the variance of the others
        self.minus_one = -mu.new_ones(())
        gradients = self.mu.grad, self.rho.grad
        # Autograd adds to its layers' gradients; those of a head without samples stay 0.
        self.zeroed = [gradients[0][:graph_end], *(g[heads_start:] for g in gradients)]
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

    def _pieces(self, layer: Layer, views: Sequence[Tensor]) -> Any:
        """A layer's means and variances, and where their gradients go."""
        mu, weights, scale, g_mean, g_variance = map(layer.split, views)
        if layer.closed_form:
            return mu if self.local else weights, scale, (*g_mean, *g_variance)
        weights = tuple(view.detach().requires_grad_() for view in weights)
        for view, gradient in zip(weights, g_mean, strict=True):
            view.grad = gradient  # autograd adds to it, and so into our vector
        return weights, scale, ()

    def new_round(self, steps: int, batch: int) -> None:
        """Draw the normals from which the coming steps take their noise."""
        outputs = sum(layer.shape[0] for layer in self.layers[self.graph_layers :])
        need = self.drawn + (batch * outputs if self.local else 0)
        self.pool = torch.randn(self.POOL * need, device=self.mu.device, dtype=self.mu.dtype)
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

    def act(self, layer: Any, x: Tensor) -> Tensor:
        """The layer under this step's draw; a closed form's backward joins the tape."""
        mean, variance, out = self.pieces[self.places[layer]]
        if not layer.closed_form:
            return layer.operate(x, *mean)
        back_to = "relu" if self.tape else "images"
        if x.requires_grad:  # autograd's part ends here
            self.tape.append(x.backward)
            x, back_to = x.detach(), "graph"
        noise = self.noise((len(x), len(mean[1]))) if self.local else None
        result, backward = drawn_linear(x, mean, variance, noise, out, back_to)
        self.tape.append(backward)
        return result

    def gradients(self, parts: Sequence[Part], kl_weight: float) -> Tensor:
        """One draw: the batch's mean NLL; mu and rho get the gradients of Eq. 8.

        The parts of a batch are samples of different heads.
        """
        for gradient in self.zeroed:
            gradient.zero_()
        self.draw()
        x = parts[0].x if len(parts) == 1 else torch.cat([part.x for part in parts])
        pieces = self.net.features(x, self.act).split([len(part.y) for part in parts])
        nll, back = torch.zeros_like(self.minus_one), []
        for part, piece in zip(parts, pieces, strict=True):
            labels = part.y[:, None]
            log_p = self.act(self.net.heads[part.head], piece).log_softmax(1)
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

    def kl(self) -> Tensor:
        return torch.stack([layer.kl().detach() for layer in self.layers]).sum()


def sampled_logits(net: Any, x: Tensor, head: int, samples: int) -> Tensor:
    """(M, B, classes): M draws of the weights, which the batch shares but for the first layer.

    Inputs are columns here: few classes are multiplied and normalised faster so.
    """
    graph = [layer for layer in net.body if not layer.closed_form]
    linears = [*net.body[len(graph) :], net.heads[head]]
    firsts = None if graph else _first_outputs(linears.pop(0), x, samples)
    layers = graph + linears  # whose weights are drawn, as one vector
    mu = torch.cat([layer.mu for layer in layers])
    sigma = torch.cat([layer.rho for layer in layers]).div_(2).exp_()
    weights = torch.empty_like(mu)
    views = weights.split([len(layer.mu) for layer in layers])
    pieces = [layer.split(v) for layer, v in zip(layers, views, strict=True)]
    rows = [x.new_empty(layer.shape[0], len(x)) for layer in linears]  # reused
    outputs = x.new_empty(samples, *rows.pop().shape)
    for output in outputs:
        torch.addcmul(mu, sigma, weights.normal_(), out=weights)
        if firsts is not None:
            h = next(firsts)
        else:
            h = x
            for layer, piece in zip(graph, pieces, strict=False):
                h = layer.activate(layer.operate(h, *piece))
            h = h.flatten(1).t()
        dense = zip([*rows, output], pieces[len(graph) :], strict=True)
        for row, (weight, bias) in dense:
            h = torch.addmm(bias[:, None], weight, F.relu_(h), out=row)
    return outputs.mT


def _first_outputs(layer: Layer, x: Tensor, samples: int) -> Iterator[Tensor]:
    """Draws of the first linear layer's outputs (width, B).

    For one input they are Gaussian with moments that need computing once; noise is drawn
    there, so that each input's predictive distribution stays exactly the same. Input b takes
    every 16th number of a row of normals, from place b on: its own M draws are independent,
    as they must be.
    """
    mean, spread = layer.moments(x)
    spread.sqrt_()
    row = mean.new_empty(16 * samples * len(mean) + len(x)).normal_()
    noise = row.unfold(0, len(x), 16)[: samples * len(mean)].view(samples, *mean.shape)
    first = torch.empty_like(mean)
    return (torch.addcmul(mean, spread, one, out=first) for one in noise)
