"""The fast path of training: Eq. 8's gradients for all layers at once.

The plain formulas are in rclcpb_core.py and are what the book explains; this file computes
the same numbers with fewer passes over memory. It needs to be read by nobody who only wants
to understand the method, and knows nothing of it but what a layer is: vectors `mu`, `rho`,
`prior_mu` and `prior_rho`, weights first, and `operate(x, weight, bias)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
    places: Tensor | None  # of its numbers in a whole matrix and biases, if some are not there

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]: ...
    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor: ...
    def prepare(self, x: Tensor) -> Tensor: ...
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
    @property
    def answers(self) -> Tensor | None: ...


def handles(net: Any) -> bool:
    """Can this file train the network? Layers in closed form must come last."""
    closed = [layer.closed_form for layer in net.body]
    return any(closed) and closed == sorted(closed)


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


def whole_size(layer: Layer) -> int:
    return math.prod(layer.shape) + layer.shape[0]


def halves(layer: Layer, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and biases of a whole vector, as views."""
    return vector[: -layer.shape[0]].view(layer.shape), vector[-layer.shape[0] :]


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
        self.minus_one = -torch.ones((), device=mu.device)
        gradients = self.mu.grad, self.rho.grad
        # Autograd adds to its layers' gradients; those of a head without samples stay 0.
        self.zeroed = [gradients[0][:graph_end], *(g[heads_start:] for g in gradients)]
        vectors = (mu, self.weights, self.scale, *gradients)
        views = zip(*(vector.split(sizes) for vector in vectors), strict=True)
        self.stairs: list[Any] = []  # of layers with `places`: flat vectors and whole matrices
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
        if layer.closed_form:
            mean, rest = views[0] if self.local else views[1], views[2:]
            if layer.places is not None:
                wholes = [mean.new_zeros(whole_size(layer)) for _ in range(4)]
                self.stairs.append((layer.places, (mean, *rest), wholes))
                mean, *rest = wholes
            mean, scale, g_mean, g_variance = (halves(layer, v) for v in (mean, *rest))
            return mean, scale, (*g_mean, *g_variance)
        weights, scale, g_mean = (layer.split(view) for view in views[1:4])
        weights = tuple(view.detach().requires_grad_() for view in weights)
        for view, gradient in zip(weights, g_mean, strict=True):
            view.grad = gradient  # autograd adds to it, and so into our vector
        return weights, scale, ()

    def new_round(self, steps: int, batch: int) -> None:
        """Draw the normals from which the coming steps take their noise."""
        outputs = sum(layer.shape[0] for layer in self.layers[self.graph_layers :])
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
        for places, flats, wholes in self.stairs:
            for flat, whole in list(zip(flats, wholes, strict=True))[:2]:  # means, variances
                whole.index_copy_(0, places, flat)

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
            head = self.net.heads[part.head]
            log_p = self.act(head, head.prepare(piece)).log_softmax(1)
            if part.answers is not None:
                nll -= (log_p * part.answers).sum() / len(x)
                g = log_p.exp_().sub_(part.answers)  # softmax - answers
            else:
                labels = part.y[:, None]
                nll -= log_p.gather(1, labels).sum() / len(x)
                ones = self.minus_one.expand(labels.shape)
                g = log_p.exp_().scatter_add_(1, labels, ones)  # softmax - one-hot
            g = self.tape.pop()(g.div_(len(x)))
            unread = math.prod(piece.shape[1:]) - head.shape[1]  # by an older head
            back.append(F.pad(g, (0, unread)) if unread else g)
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
        for places, flats, wholes in self.stairs:
            for flat, whole in list(zip(flats, wholes, strict=True))[2:]:  # gradients
                torch.index_select(whole, 0, places, out=flat)
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
