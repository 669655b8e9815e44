"""What growing must do to a layer: the oracle that several files share."""

from __future__ import annotations

import torch
from torch import Tensor

import rclcpb_core as core

VECTORS = ("mu", "rho", "prior_mu", "prior_rho")


def check_grown(
    layer: core.BayesLayer, old_shape: tuple[int, ...], before: dict[str, Tensor], zero: bool
) -> None:
    """Old entries are there bit for bit, new ones are fresh; zeros from new to old."""
    out, into = old_shape[:2]
    fresh = {"rho": layer.settings.rho_init, "prior_mu": 0.0, "prior_rho": 0.0}
    for name in VECTORS:
        weight, bias = layer.split(getattr(layer, name).detach())
        assert torch.equal(weight[:out, :into], before[name][:-out].view(old_shape))
        assert torch.equal(bias[:out], before[name][-out:])
        for new in (weight[out:], weight[:out, into:], bias[out:]):
            assert name == "mu" or (new == fresh[name]).all()
    weight = layer.split(layer.mu.detach())[0]
    assert (weight[out:] != 0).all()
    assert ((weight[:out, into:] == 0) == zero).all()
    assert all(isinstance(getattr(layer, name), torch.nn.Parameter) for name in VECTORS[:2])
