"""Distortions: what each may do to an image, and what none may."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rclcpb import distort as distortions
from rclcpb.distort import DISTORTIONS, Affine, distort
from rclcpb.method import Samples
from rclcpb.scenarios import from_arrays


def shifted(image: Tensor, right: int, down: int) -> Tensor:
    """(C, H, W) moved by whole pixels, zeros coming in."""
    _, h, w = image.shape
    out = torch.zeros_like(image)
    rows, columns = slice(max(down, 0), h + min(down, 0)), slice(max(right, 0), w + min(right, 0))
    rows_in, columns_in = (
        slice(max(-down, 0), h + min(-down, 0)),
        slice(max(-right, 0), w + min(-right, 0)),
    )
    out[:, rows, columns] = image[:, rows_in, columns_in]
    return out


def find_shift(image: Tensor, moved: Tensor, reach: int) -> tuple[int, int] | None:
    span = range(-reach, reach + 1)
    for right, down in ((r, d) for r in span for d in span):
        if torch.allclose(shifted(image, right, down), moved, atol=1e-4):
            return right, down
    return None


def test_settings_may_name_every_distortion() -> None:
    assert get_args(distortions.Distortion) == ("none", *DISTORTIONS)


def test_distortion_with_no_limits_is_the_identity(monkeypatch: Any) -> None:
    monkeypatch.setitem(DISTORTIONS, "still", Affine())
    x = torch.rand(10, 3, 7, 9)
    torch.testing.assert_close(distort(x, (3, 7, 9), "still"), x, atol=1e-5, rtol=0)


def test_whole_pixels_are_looked_up_where_the_grid_would_read_them() -> None:
    x, limit = torch.rand(40, 3, 6, 8), DISTORTIONS["crop-flip"]
    u = 2 * torch.rand(6, 40) - 1
    mirror, move = u[5].sign(), (4.5 * u[3:5]).round()
    read = distortions._bent(x, limit, u, mirror, move)
    looked_up = distortions._shifted(x, limit.pixels, mirror, move)
    torch.testing.assert_close(looked_up, read, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(5, 9), (28, 28)])
def test_the_bending_field_is_a_bicubic_interpolation(size: tuple[int, int]) -> None:
    field = torch.randn(3, 2, 4, 4)
    down, across = (distortions._bicubic(n, field.device, field.dtype) for n in size)
    whole = F.interpolate(field, size, mode="bicubic", align_corners=True)
    torch.testing.assert_close(down @ field @ across.t(), whole)


def test_a_batch_lies_in_memory_as_the_images_do() -> None:
    x = torch.rand(9, 8, 8, 3).permute(0, 3, 1, 2)
    index = torch.tensor([4, 0, 4])
    for kind in ("none", "crop-flip", "elastic"):
        batch = Samples(x, torch.arange(9)).take(index, (3, 8, 8), kind)
        assert batch.x.is_contiguous(memory_format=torch.channels_last)
        assert batch.y.tolist() == [4, 0, 4]
    assert torch.equal(Samples(x, torch.arange(9)).rows(index).x, x[index])


def test_shift_moves_whole_pixels_and_reaches_everywhere() -> None:
    x = torch.rand(300, 81)
    moved = distort(x, (1, 9, 9), "shift")
    assert moved.shape == x.shape
    found = [find_shift(a.view(1, 9, 9), b.view(1, 9, 9), 2) for a, b in zip(x, moved, strict=True)]
    assert None not in found
    assert len(set(found)) == 25


def test_crop_flip_mirrors_half_of_the_images() -> None:
    x = torch.rand(120, 3, 10, 10)
    moved, flips = distort(x, (3, 10, 10), "crop-flip"), 0
    for image, result in zip(x, moved, strict=True):
        straight = find_shift(image, result, 4)
        mirrored = find_shift(image.flip(2), result, 4)
        assert (straight is None) != (mirrored is None)
        flips += mirrored is not None
    assert 35 < flips < 85  # 60 expected, deviation 5.5


def test_images_that_may_not_be_mirrored_are_moved_only() -> None:
    """A mirrored digit is another sign; the moves are those it would have had."""
    x = torch.rand(60, 3, 10, 10)
    digits = Samples(x, torch.zeros(60, dtype=torch.long), mirror=False)
    torch.manual_seed(0)
    moved = digits.take(torch.arange(60), (3, 10, 10), "crop-flip").x
    torch.manual_seed(0)
    free = distort(x, (3, 10, 10), "crop-flip")
    kept = 0
    for image, result, other in zip(x, moved, free, strict=True):
        assert find_shift(image, result, 4) is not None
        kept += result.equal(other)
    assert 10 < kept < 50


@pytest.mark.parametrize("kind", sorted(DISTORTIONS))
@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 8, 8)])
def test_distorted_images_keep_shape_range_and_label(kind: str, shape: tuple) -> None:
    flat = shape[0] == 1
    x = torch.rand(40, math.prod(shape)) if flat else torch.rand(40, *shape)
    data = Samples(x, torch.arange(40))
    out = data.take(torch.arange(39, -1, -1), shape, kind)
    assert out.x.shape == x.shape and out.y.tolist() == list(range(39, -1, -1))
    assert out.x.min() >= 0 and out.x.max() <= 1 + 1e-5
    assert (out.x - x.flip(0)).abs().flatten(1).max(1).values.median() > 0.1
    middle = out.x.view(40, *shape)[:, :, 3:-3, 3:-3]
    assert middle.mean() > 0.3  # it is still the image, not an empty one


def test_affine_moves_images_each_in_its_own_way() -> None:
    x = torch.rand(1, 144).expand(5, 144)
    moved = distort(x, (1, 12, 12), "affine")
    assert len({tuple(row.tolist()) for row in moved}) == 5


def test_colour_images_without_a_trunk_are_moved_channel_by_channel() -> None:
    """Inputs are laid out as distort reads them: channel, row, column."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (8, 7, 7, 3), dtype=np.uint8)
    y = np.arange(8) % 2
    scenario = from_arrays([(x, y, x, y)])
    flat = scenario.inputs(x, scenario.tasks[0], torch.device("cpu"))
    moved = distort(flat, scenario.image_shape(), "shift")
    for image, result in zip(x, moved, strict=True):
        image = torch.from_numpy(image).permute(2, 0, 1) / 255
        assert find_shift(image, result.view(3, 7, 7), 2) is not None


def test_shuffled_images_are_distorted_in_their_order_before_the_shuffle() -> None:
    x, pixels = torch.rand(20, 81), torch.randperm(81)
    data = Samples(x[:, pixels], torch.zeros(20, dtype=torch.long), 0, pixels)
    moved = data.take(torch.arange(20), (1, 9, 9), "shift").x
    back = torch.empty_like(moved)
    back[:, pixels] = moved
    for image, result in zip(x, back, strict=True):
        assert find_shift(image.view(1, 9, 9), result.view(1, 9, 9), 2) is not None
