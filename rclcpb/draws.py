"""The fast path of predictions: many draws of a network, with fewer passes over memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rclcpb.fast import Layer


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
    views = list(zip(layers, weights.split([len(layer.mu) for layer in layers]), strict=True))
    rows = [x.new_empty(layer.shape[0], len(x)) for layer in linears]  # reused
    outputs = x.new_empty(samples, *rows.pop().shape)
    for output in outputs:
        torch.addcmul(mu, sigma, weights.normal_(), out=weights)
        pieces = [layer.split(view) for layer, view in views]
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
    row = torch.randn(16 * samples * len(mean) + len(x), device=x.device)
    noise = row.unfold(0, len(x), 16)[: samples * len(mean)].view(samples, *mean.shape)
    first = torch.empty_like(mean)
    return (torch.addcmul(mean, spread, one, out=first) for one in noise)
