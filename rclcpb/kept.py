"""Networks as files and back: what makes one the same as another, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from rclcpb import __version__, checks
from rclcpb.files import DAMAGE, RclCpbError, load_tensors, save_tensors
from rclcpb.method import Shape, below, seeded

NUMBERS = ("mu", "rho", "prior_mu", "prior_rho")  # of a layer, one vector each


class KeptLayer(nn.Module):
    """A layer that can tell its form and take over another's."""

    shape: tuple[int, ...]
    mu: Tensor
    steps: list[tuple[int, int]] | None = None  # of a staircase

    def set_form(self, shape: tuple[int, ...], steps: list[tuple[int, int]] | None) -> None:
        self.shape, self.steps = shape, steps

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def assign(self, name: str, value: Tensor) -> None:
        """Replace one of the vectors."""
        setattr(self, name, nn.Parameter(value) if name in ("mu", "rho") else value)

    def form(self) -> dict[str, Any]:
        """What, with its numbers, makes another layer of its kind the same: JSON values."""
        form: dict[str, Any] = {"shape": list(self.shape)}
        return form | ({"steps": [list(step) for step in self.steps]} if self.steps else {})

    def become(self, form: dict[str, Any], numbers: dict[str, Tensor]) -> None:
        """Take over another layer's form and numbers."""
        steps = [(units, reads) for units, reads in form.get("steps", [])]
        self.set_form(tuple(form["shape"]), steps or None)
        for name in NUMBERS:
            value = checks.vector(name, numbers[name])
            self.split(value)  # fails if there are not as many as the form says
            self.assign(name, value.to(self.mu.device, copy=True))


class KeptNetwork(nn.Module):
    """A network that can tell its layers' forms and take over another's."""

    settings: Any
    image_shape: Shape
    heads: nn.ModuleList

    def add_head(self, classes: int) -> None:
        raise NotImplementedError

    def forms(self) -> dict[str, dict[str, Any]]:
        """Every layer's form by its name."""
        named = ((name, m) for name, m in self.named_modules() if isinstance(m, KeptLayer))
        return {name: layer.form() for name, layer in named}

    def become(self, forms: dict[str, dict[str, Any]], numbers: dict[str, Tensor]) -> None:
        """Take over another network's heads, sizes and numbers."""
        self.heads = nn.ModuleList()
        with seeded("become"):  # draws that are overwritten, and not the caller's
            for name, form in forms.items():
                if name.startswith("heads."):
                    self.add_head(form["shape"][0])
        for name, form in forms.items():
            layer: Any = self.get_submodule(name)
            layer.become(form, below(f"{name}.", numbers))
        if self.state_dict().keys() != numbers.keys():
            raise RclCpbError("the file has numbers of other layers than it names.")
        self.answer_once()

    @torch.no_grad()
    def answer_once(self: Any) -> None:
        """Do the layers fit together? Else this fails."""
        with seeded("once"):
            for head in range(len(self.heads)):
                self.seen_by(head)(torch.zeros(1, *self.image_shape, device=self.device), head)

    def save(self, path: str | Path, about: dict[str, Any] | None = None) -> None:
        """Write the network, and what a user of it should know (`about`)."""
        facts = {"image_shape": self.image_shape, "layers": self.forms(), "about": about or {}}
        facts |= {"settings": self.settings._asdict(), "version": __version__}
        save_tensors(Path(path), self.state_dict(), facts)

    @classmethod
    def load(cls, path: str | Path, settings: Any, device: Any = "cpu") -> Self:
        """A network that `save` wrote; `about` is an attribute of it."""
        tensors, facts = load_tensors(Path(path), "a kept network")
        try:
            layers, given = facts["layers"], settings(**facts["settings"])
            hidden = [form["shape"][0] for name, form in layers.items() if "hidden." in name]
            with seeded("load"):  # its draws are overwritten, and not the caller's
                shape, make = tuple(facts["image_shape"]), cast(Any, cls)
                net = make(shape, hidden, given, "trunk.0" in layers)
            net.become(layers, tensors)
            net.about = facts["about"]
        except DAMAGE as error:
            raise RclCpbError(f"{path} is not a network of this version.") from error
        return net.to(checks.device(device))
