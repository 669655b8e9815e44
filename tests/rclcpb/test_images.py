"""Image sets: the embedded digits, files good and bad, downloads."""

from __future__ import annotations

import os
import pickle
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_disk import one_sentence, save, small_images
from running import Harm

from rclcpb import images, scenarios
from rclcpb.files import RclCpbError
from rclcpb.images import SHA256, Images, data_root, load_images
from rclcpb.presets import make_scenario

ROOT = Path(__file__).resolve().parents[2]


# -------------------------------------------------------------------- embedded digits


def test_embedded_digits(digits: Images, raw_digits: tuple) -> None:
    assert digits.x_train.shape == (4000, 28, 28) and digits.x_test.shape[0] == 1000
    assert all(array.dtype == np.uint8 for array in digits)
    assert np.bincount(digits.y_train).tolist() == [400] * 10
    assert np.bincount(digits.y_test).tolist() == [100] * 10
    x, y = raw_digits
    for label in range(10):  # the last 100 of each class are the test
        mine = x[y == label].reshape(-1, 28, 28)
        assert np.array_equal(digits.x_train[digits.y_train == label], mine[:400])
        assert np.array_equal(digits.x_test[digits.y_test == label], mine[400:])


def test_embedded_digits_have_their_checksum(digits: Images) -> None:
    assert digits.sha256() == SHA256["mnist5k"]
    other = digits._replace(y_test=digits.y_test[::-1])
    assert other.sha256() != SHA256["mnist5k"]


# ------------------------------------------------------------------------------- files


def test_npz_is_read_back(tmp_path: Path) -> None:
    images = small_images()
    save(tmp_path, "mnist", images)
    for a, b in zip(load_images("mnist", tmp_path, published=False), images, strict=True):
        assert np.array_equal(a, b) and a.dtype == b.dtype


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100"])
def test_what_is_not_the_published_set_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise under the name of MNIST would stand beside the paper's numbers."""
    made = small_images((32, 32, 3) if "cifar" in name else (28, 28))
    path = save(tmp_path, name, made)
    with pytest.raises(RclCpbError, match=f"is not the published {name}: delete it") as caught:
        load_images(name, tmp_path)
    assert str(path) in one_sentence(caught.value) and path.exists()
    monkeypatch.setitem(SHA256, name, made.sha256())  # as if this were the published set
    load_images(name, tmp_path)
    with monkeypatch.context() as patch:  # the second time costs no checksum
        patch.setattr(Images, "sha256", lambda _: pytest.fail("again"))
        load_images(name, tmp_path)
    other = made._replace(y_test=made.y_test[::-1].copy())
    save(tmp_path, name, other)
    os.utime(path, ns=(1, 1))
    with pytest.raises(RclCpbError, match="is not the published"):
        load_images(name, tmp_path)


def test_where_images_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCLCPB_DATA", raising=False)
    assert data_root() == ROOT / "data"
    monkeypatch.setenv("RCLCPB_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "own") == tmp_path / "own"
    save(tmp_path, "cifar10", small_images((32, 32, 3)))
    assert load_images("cifar10", published=False).x_train.shape == (40, 32, 32, 3)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 0.9999])
def test_truncated_npz(tmp_path: Path, share: float) -> None:
    path = save(tmp_path, "mnist", small_images())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(RclCpbError, match="cannot be read") as caught:
        load_images("mnist", tmp_path)
    assert str(path) in one_sentence(caught.value)
    assert "--download" in str(caught.value)


def test_altered_npz(tmp_path: Path) -> None:
    path = save(tmp_path, "mnist", small_images())
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    for content in (b"not an archive", np.zeros(3).tobytes()):
        path.write_bytes(content)
        with pytest.raises(RclCpbError, match="cannot be read"):
            load_images("mnist", tmp_path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device"])
def test_what_cannot_be_read_now_may_be_a_good_file(kind: str, tmp_path: Path) -> None:
    """At once, and nobody is told to delete it."""
    path = tmp_path / "mnist.npz"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("other.npz")
        (tmp_path / "other.npz").symlink_to("mnist.npz")
    else:
        path.symlink_to(os.devnull)
    with pytest.raises(RclCpbError, match="cannot read") as caught:
        load_images("mnist", tmp_path)
    said = one_sentence(caught.value)
    assert str(path) in said and "delete" not in said and "truncated" not in said


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), PermissionError(13, "not yours"), MemoryError()]
)
def test_a_failing_disk_or_memory_is_not_a_damaged_file(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    path = save(tmp_path, "mnist", small_images())
    for place, name in ((os, "open"), (images, "_unpacked")):
        with monkeypatch.context() as patch:
            if name == "_unpacked" and isinstance(error, OSError):
                continue  # by then it is in memory
            patch.setattr(place, name, fail)
            with pytest.raises(RclCpbError, match=f"cannot read {path}") as caught:
                load_images("mnist", tmp_path)
        assert "delete" not in one_sentence(caught.value)


def bomb(path: Path, shape: tuple[int, ...], written: int) -> None:
    """Says its images have this shape, and has so many bytes of zeros for them."""
    x, y = BytesIO(), BytesIO()
    np.lib.format.write_array_header_1_0(
        x, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    np.save(y, np.zeros(shape[0] if shape[0] < 100 else 40, np.uint8))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for split in ("train", "test"):
            archive.writestr(f"y_{split}.npy", y.getvalue())
            with archive.open(f"x_{split}.npy", "w", force_zip64=True) as member:
                member.write(x.getvalue())
                for _ in range(written // 2**20):
                    member.write(bytes(2**20))


@pytest.mark.parametrize("written", [0, 600])  # MB
def test_a_small_file_that_would_fill_the_memory_is_refused(written: int, tmp_path: Path) -> None:
    """Before it is unpacked, whether it has all it says or not."""
    path = tmp_path / "mnist.npz"
    bomb(path, (written * 2**20 // 784 or 10**12, 28, 28), written * 2**20)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    with pytest.raises(RclCpbError, match="would unpack to"):
        load_images("mnist", tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_an_npz_without_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)


def test_a_pickle_under_an_npz_name_runs_no_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / "mnist.npz"
    path.write_bytes(pickle.dumps(Harm(trace)))
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)
    harm = np.array([Harm(trace)], dtype=object)
    np.savez(path, x_train=harm, y_train=harm, x_test=harm, y_test=harm)
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": np.zeros((40, 28, 28), np.float32)},
        {"x_train": np.zeros((40, 784), np.uint8)},
        {"y_test": np.zeros(39, np.uint8)},
        {"y_train": np.zeros((40, 1), np.uint8)},
        {"x_test": np.zeros((2, 40, 28, 28, 1), np.uint8)},
    ],
)
def test_wrong_shapes_and_types_in_an_npz(tmp_path: Path, change: dict) -> None:
    save(tmp_path, "mnist", small_images()._replace(**change))
    with pytest.raises(RclCpbError, match="wanted uint8") as caught:
        load_images("mnist", tmp_path)
    one_sentence(caught.value)


def test_unknown_names() -> None:
    with pytest.raises(RclCpbError, match="no image set 'imagenet': choose from"):
        load_images("imagenet")
    with pytest.raises(RclCpbError, match="no scenario 'nothing': choose from"):
        make_scenario("nothing")
    with pytest.raises(RclCpbError, match="seed=-1"):
        make_scenario("pmnist-5k", -1)


# ---------------------------------------------------------------------- real full sets


def full_set(name: str) -> Images:
    root = os.environ.get("RCLCPB_DATA")
    if not root or not (Path(root) / f"{name}.npz").exists():
        pytest.skip(f"needs {name}.npz in the folder that RCLCPB_DATA names")
    return load_images(name, root)


def test_full_mnist() -> None:
    images = full_set("mnist")
    assert images.sha256() == SHA256["mnist"]
    assert images.x_train.shape == (60000, 28, 28) and len(images.y_test) == 10000
    scenario = scenarios.split_mnist(images)
    assert sum(len(task.y_train) for task in scenario.tasks) == 60000


def test_full_cifar100() -> None:
    images = full_set("cifar100")
    assert images.sha256() == SHA256["cifar100"]
    assert images.x_train.shape == (50000, 32, 32, 3)
    assert np.bincount(images.y_test).tolist() == [100] * 100


def test_full_sequence() -> None:
    sets = [full_set(name) for name in ("mnist", "svhn", "cifar10")]
    assert sets[2].sha256() == SHA256["cifar10"]
    scenario = scenarios.mnist_svhn_cifar10(*sets)
    assert [len(task.y_train) for task in scenario.tasks] == [60000, 73257, 50000]
