"""Random distortions of images, a map of its own for each."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor


class Affine(NamedTuple):
    """How far a random distortion may go."""

    degrees: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    pixels: int = 0
    flip: bool = False
    bend: float = 0.0  # of a smooth random field, in pixels


DISTORTIONS = {
    "shift": Affine(pixels=2),
    "affine": Affine(degrees=15, zoom=0.12, shear=0.2, pixels=4),
    "elastic": Affine(degrees=15, zoom=0.12, shear=0.2, pixels=2, bend=1.5),
    "crop-flip": Affine(pixels=4, flip=True),
}
# what settings may say: their names, and none
Distortion: TypeAlias = Literal["none", "shift", "affine", "elastic", "crop-flip"]


def distort(x: Tensor, image_shape: tuple[int, int, int], kind: str, flip: bool = True) -> Tensor:
    """Each image moved by its own random map; x keeps its shape and memory layout.

    flip=False leaves out the mirroring that some kinds have.
    """
    if kind not in DISTORTIONS:
        raise ValueError(f"no distortion {kind!r}: choose from {', '.join(DISTORTIONS)}.")
    if math.prod(x.shape[1:]) != math.prod(image_shape) or not x.is_floating_point():
        raise ValueError(f"{x.dtype} images {tuple(x.shape)}: wanted floats of {image_shape}.")
    limit, images = DISTORTIONS[kind], x.reshape(len(x), *image_shape)
    u = 2 * torch.rand(6, len(x), device=x.device, dtype=x.dtype) - 1
    mirror = u[5].sign() if limit.flip and flip else torch.ones_like(u[5])
    move = u[3:5] * (limit.pixels + 0.5)
    if limit.degrees or limit.zoom or limit.shear or limit.bend:
        moved = _bent(images, limit, u, mirror, move)
    else:  # whole pixels blur nothing
        moved = _shifted(images, limit.pixels, mirror, move.round())
    return torch.empty_like(x).copy_(moved.reshape(x.shape))


def _bent(images: Tensor, limit: Affine, u: Tensor, mirror: Tensor, move: Tensor) -> Tensor:
    """Turned, zoomed, sheared, moved, and bent by a smooth field; interpolated."""
    n, _, height, width = images.shape
    angle, zoom = math.radians(limit.degrees) * u[0], 1 + limit.zoom * u[1]
    shear = limit.shear * u[2]
    steps = images.new_tensor([2 / width, 2 / height])
    cos, sin = angle.cos() * zoom, angle.sin() * zoom
    rows = (
        [mirror * cos, -sin + shear, move[0] * steps[0]],
        [sin, cos, move[1] * steps[1]],
    )
    theta = torch.stack([torch.stack(row, 1) for row in rows], 1)  # (n, 2, 3)
    grid = F.affine_grid(theta, [n, 1, height, width], align_corners=False)
    if limit.bend:
        field = limit.bend * torch.randn(n, 2, 4, 4, device=images.device, dtype=images.dtype)
        down, across = (_bicubic(size, field.device, field.dtype) for size in (height, width))
        field = down @ field @ across.t()  # (n, 2, H, W): interpolate, but faster
        grid = torch.addcmul(grid, field.permute(0, 2, 3, 1), steps)
    return F.grid_sample(images, grid, align_corners=False)


@cache
def _bicubic(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(size, 4): the bicubic curve through four points, at so many places."""
    points = torch.eye(4, device=device, dtype=dtype)[None, :, :, None]
    curve = F.interpolate(points, (size, 1), mode="bicubic", align_corners=True)
    return curve[0, :, :, 0].t()


def _shifted(images: Tensor, pixels: int, mirror: Tensor, move: Tensor) -> Tensor:
    """Moved by whole pixels and mirrored: looked up in the image with a black frame."""
    n, channels, height, width = images.shape
    centre = (width - 1) / 2
    across = torch.arange(width, device=images.device, dtype=images.dtype) - centre
    column = mirror[:, None] * across + (centre + move[0][:, None] + pixels)
    row = torch.arange(height, device=images.device) + (move[1][:, None] + pixels)
    high, wide = height + 2 * pixels, width + 2 * pixels
    first = torch.arange(n, device=images.device)[:, None, None] * (high * wide)
    place = first + row.long()[:, :, None] * wide + column.round().long()[:, None]
    framed = F.pad(images.permute(0, 2, 3, 1), (0, 0, *[pixels] * 4))
    moved = framed.reshape(-1, channels).index_select(0, place.flatten())
    return moved.view(n, height, width, channels).permute(0, 3, 1, 2)
