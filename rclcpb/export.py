"""A kept network without its widths: sparse, deterministic, for programs that know no Bayes.

plain_network(open_kept("mine.safetensors"), keep=0.1) -> PlainNetwork
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

import rclcpb_core as core
from rclcpb.files import RclCpbError, load_tensors, replacing, save_tensors
from rclcpb.opened import Opened
from rclcpb.writers import optional


class Affine(NamedTuple):
    """A layer: weights, 0 where they were dropped, and biases."""

    weight: Tensor
    bias: Tensor


class PlainNetwork(NamedTuple):
    """Convolutions, hidden layers and heads as they act by the means of their weights."""

    convolutions: list[Affine]
    hidden: list[Affine]
    heads: list[Affine]
    center: Tensor
    scale: Tensor
    facts: dict[str, Any]  #: what it reads, what stands behind its outputs

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Probabilities (N, classes) of each head for images (N, ...), bytes as 0 to 1."""
        x = (images - self.center) / self.scale
        x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
        for weight, bias in self.convolutions:
            x = F.max_pool2d(F.relu(F.conv2d(x, weight, bias, padding=1)), 2)
        x = x.flatten(1)
        for weight, bias in self.hidden:
            x = F.relu(F.linear(x, weight, bias))
        return [F.linear(x, *head).softmax(1) for head in self.heads]

    def layers(self) -> dict[str, Affine]:
        kinds = {"trunk": self.convolutions, "hidden": self.hidden, "heads": self.heads}
        return {f"{k}.{i}": one for k, of in kinds.items() for i, one in enumerate(of)}

    def weights(self) -> tuple[int, int]:
        """Hidden weights that are left, and all."""
        left = sum(int(one.weight.count_nonzero()) for one in self.hidden)
        return left, self.facts["hidden_weights"]

    def save(self, path: Path) -> None:
        """As safetensors: of the hidden weights, the values that are left and their places."""
        tensors = {"center": self.center, "scale": self.scale}
        for name, (weight, bias) in self.layers().items():
            places = weight.flatten().nonzero().flatten()
            tensors[f"{name}.values"] = weight.flatten()[places]
            tensors[f"{name}.places"] = places.to(torch.int32)
            tensors[f"{name}.bias"] = bias
        shapes = {name: list(one.weight.shape) for name, one in self.layers().items()}
        save_tensors(path, tensors, {"exported": self.facts, "shapes": shapes})

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote."""
        tensors, facts = load_tensors(path, "an exported network")
        try:
            kinds: dict[str, list[Affine]] = {"trunk": [], "hidden": [], "heads": []}
            for name, shape in facts["shapes"].items():
                places = tensors[f"{name}.places"].long()
                flat = torch.zeros(torch.Size(shape).numel())
                weight = flat.index_copy(0, places, tensors[f"{name}.values"]).view(shape)
                kinds[name.split(".")[0]].append(Affine(weight, tensors[f"{name}.bias"]))
            parts = kinds["trunk"], kinds["hidden"], kinds["heads"]
            return cls(*parts, tensors["center"], tensors["scale"], facts["exported"])
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise RclCpbError(f"{path} is not an exported network of this version.") from error


def kept_weights(net: core.ProgressiveBNN, keep: float, by: str = "snr") -> list[Tensor]:
    """Masks of the hidden weights that are there (Eq. 4): the share with the highest SNR.

    by="magnitude" goes by the size of the mean alone.
    """
    if not 0 < keep <= 1:
        raise RclCpbError(f"keep={keep}: give a share above 0 and up to 1.")
    with torch.no_grad():
        worth = [
            layer.snr() if by == "snr" else layer.weights(layer.mu.abs()) for layer in net.growable
        ]
    flat = torch.cat([one.flatten() for one in worth])
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(max(1, round(keep * len(flat)))).indices] = True
    parts = mask.split([one.numel() for one in worth])
    return [part.view(one.shape) for part, one in zip(parts, worth, strict=True)]


@torch.no_grad()
def plain_network(opened: Opened, keep: float = 1.0, by: str = "snr") -> PlainNetwork:
    """The means of a kept network, its least significant hidden weights dropped.

    What is not there (old units that never read new ones) is 0 here; so are the columns of
    neurons that an old head does not read.
    """
    net, hidden = opened.net, []
    masks = kept_weights(net, keep, by)
    for layer, mask in zip(net.growable, masks, strict=True):
        dropped = layer.with_biases(~mask)
        hidden.append(Affine(*layer.split(layer.mu.masked_fill(dropped, 0))))
    heads = []
    for head in net.heads:
        weight, bias = head.split(head.mu.detach())
        heads.append(Affine(F.pad(weight, (0, net.sizes()[-1] - weight.shape[1])), bias))
    convolutions = [Affine(*layer.split(layer.mu.detach())) for layer in net.trunk]
    facts = {
        "shape": list(opened.shape),
        "tasks": opened.tasks,
        "labels": opened.labels,
        "keep": keep,
        "hidden_weights": sum(mask.numel() for mask in masks),
    }
    return PlainNetwork(convolutions, hidden, heads, opened.center, opened.scale, facts)


# ---------------------------------------------------------------------------------- ONNX


def to_onnx(network: PlainNetwork) -> Any:
    """The network as an ONNX model: images in, a head's probabilities out, by its task's name."""
    onnx = optional("onnx", "onnx")
    node, nodes = onnx.helper.make_node, []
    shape, before = network.facts["shape"], "images"
    for operation, constant in (("Sub", "center"), ("Div", "scale")):
        nodes.append(node(operation, [before, constant], [f"{constant}_done"]))
        before = f"{constant}_done"
    if len(shape) == 3:
        nodes.append(node("Transpose", [before], ["channels"], perm=[0, 3, 1, 2]))
        before = "channels"
    for name in network.layers():
        kind = name.split(".")[0]
        inputs, out = [f"{name}.weight", f"{name}.bias"], f"{name}.out"
        if name == "hidden.0":
            nodes.append(node("Flatten", [before], ["flat"]))
            before = "flat"
        if kind == "trunk":
            nodes.append(node("Conv", [before, *inputs], [out], pads=[1, 1, 1, 1]))
            nodes.append(node("Relu", [out], [f"{name}.relu"]))
            pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
            nodes.append(node("MaxPool", [f"{name}.relu"], [f"{name}.act"], **pool))
        else:
            nodes.append(node("Gemm", [before, *inputs], [out], transB=1))
        if kind == "hidden":
            nodes.append(node("Relu", [out], [f"{name}.act"]))
        if kind == "heads":
            nodes.append(node("Softmax", [out], [_output(network, name)], axis=1))
        else:
            before = f"{name}.act"
    return _model(onnx, network, nodes)


def _numbers(onnx: Any, network: PlainNetwork) -> tuple[list[Any], list[Any]]:
    """All numbers as ONNX has them, and apart: matrices of which few weights are left."""
    whole, sparse, to = {"center": network.center, "scale": network.scale}, [], onnx.numpy_helper
    for name, (weight, bias) in network.layers().items():
        whole[f"{name}.bias"] = bias
        if name.startswith("hidden.") and 3 * weight.count_nonzero() < weight.numel():
            flat, places = weight.flatten(), weight.flatten().nonzero().flatten()
            left = to.from_array(flat[places].numpy(), f"{name}.weight")
            where = to.from_array(places.numpy(), f"{name}.places")
            sparse.append(onnx.helper.make_sparse_tensor(left, where, list(weight.shape)))
        else:
            whole[f"{name}.weight"] = weight
    return [to.from_array(value.numpy(), name) for name, value in whole.items()], sparse


def _output(network: PlainNetwork, name: str) -> str:
    """What a head's probabilities are called."""
    return f"probabilities: {network.facts['tasks'][int(name.split('.')[1])]}"


def _model(onnx: Any, network: PlainNetwork, nodes: list[Any]) -> Any:
    """The graph with its inputs, outputs and what is known of it, checked."""
    value, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    heads = [name for name in network.layers() if name.startswith("heads.")]
    outputs = [
        value(_output(network, name), number, ["N", len(head.bias)])
        for name, head in zip(heads, network.heads, strict=True)
    ]
    images = value("images", number, ["N", *network.facts["shape"]])
    whole, sparse = _numbers(onnx, network)
    ends = nodes, "rclcpb", [images], outputs, whole
    graph = onnx.helper.make_graph(*ends, sparse_initializer=sparse)
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    onnx.helper.set_model_props(model, {"rclcpb": json.dumps(network.facts)})
    onnx.checker.check_model(model)
    return model


def write_onnx(network: PlainNetwork, path: Path) -> None:
    content = to_onnx(network).SerializeToString()
    with replacing(path) as part:
        part.write_bytes(content)


def off_by(network: PlainNetwork, path: Path) -> float:
    """The largest difference between its probabilities and those of onnxruntime, which reads it."""
    runtime = optional("onnxruntime", "onnx")
    numbers = torch.randn((64, *network.facts["shape"]), generator=torch.Generator().manual_seed(0))
    images = network.center + network.scale * numbers
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = map(torch.from_numpy, session.run(None, {"images": images.numpy()}))
    pairs = zip(found, network(images), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)
