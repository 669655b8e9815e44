"""Image sets: the embedded digits, files good and bad, downloads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from on_disk import one_sentence, save, small_images
from running import Harm

from rclcpb import scenarios
from rclcpb.files import RclCpbError
from rclcpb.images import SHA256, Images, _import_torchvision, data_root, load_images
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
    for a, b in zip(load_images("mnist", tmp_path), images, strict=True):
        assert np.array_equal(a, b) and a.dtype == b.dtype


def test_where_images_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCLCPB_DATA", raising=False)
    assert data_root() == ROOT / "data"
    monkeypatch.setenv("RCLCPB_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "own") == tmp_path / "own"
    save(tmp_path, "cifar10", small_images((32, 32, 3)))
    assert load_images("cifar10").x_train.shape == (40, 32, 32, 3)


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
    path.unlink()
    path.mkdir()
    with pytest.raises(RclCpbError, match="cannot be read"):
        load_images("mnist", tmp_path)


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
    with pytest.raises(RclCpbError, match="seed -1"):
        make_scenario("pmnist-5k", -1)


# --------------------------------------------------------------------------- downloads


@pytest.fixture
def sets() -> Any:
    """torchvision.datasets, as the loaders import it."""
    return _import_torchvision()


def fake(sets: Any, monkeypatch: pytest.MonkeyPatch, calls: list, fail: Any = None) -> None:
    """Data set classes that make a few images up instead of fetching them."""

    class Made:
        def __init__(
            self, root: str, train: bool = True, download: bool = False, split: str = ""
        ) -> None:
            if fail:
                raise fail
            calls.append((type(self).__name__, train, download, split))
            n = 30 if train and split != "test" else 20
            shape = {"MNIST": (28, 28), "SVHN": (3, 32, 32)}.get(type(self).__name__, (32, 32, 3))
            self.data: Any = np.full((n, *shape), n, np.uint8)
            labels = np.arange(n) % 10
            if type(self).__name__ == "SVHN":
                self.data[:, 0] = 7  # the red channel
                self.labels = labels
            elif type(self).__name__ == "MNIST":
                self.data, self.targets = (
                    torch.from_numpy(self.data),
                    torch.tensor(labels),
                )
            else:
                self.targets = labels.tolist()

    for name in ("MNIST", "SVHN", "CIFAR10", "CIFAR100"):
        monkeypatch.setattr(sets, name, type(name, (Made,), {}))


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10", "cifar100"])
def test_download_writes_the_npz_once(
    name: str, sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list = []
    fake(sets, monkeypatch, calls)
    images = load_images(name, tmp_path / "new" / "folder")
    assert len(calls) == 2 and all(call[0] == name.upper() and call[2] for call in calls)
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    assert images.x_train.shape == (30, *shape) and images.x_test.shape == (20, *shape)
    assert all(array.dtype == np.uint8 for array in images)
    assert images.y_train.tolist() == [i % 10 for i in range(30)]
    if name == "svhn":
        assert (images.x_train[..., 0] == 7).all() and (images.x_train[..., 1] == 30).all()
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [f"{name}.npz"]
    again = load_images(name, tmp_path / "new" / "folder")
    assert len(calls) == 2 and again.sha256() == images.sha256()


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("file corrupted")])
def test_a_download_that_fails_says_what_to_do(
    error: Exception, sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [], error)
    with pytest.raises(RclCpbError, match="could not be downloaded") as caught:
        load_images("mnist", tmp_path)
    text = one_sentence(caught.value)
    assert str(error) in text and "RCLCPB_DATA" in text and "-5k" in text
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_that_cannot_be_written(
    sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RclCpbError, match="Not a directory") as caught:
        load_images("mnist", tmp_path / "file" / "data")
    one_sentence(caught.value)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_disk_that_fills_up_leaves_no_half_file(
    sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(RclCpbError, match="No space left on device") as caught:
        load_images("mnist", tmp_path)
    one_sentence(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_torchvision_can_be_imported_beside_a_cpu_torch() -> None:
    """In a new process; it also survives an import that failed before."""
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        try:
            import torchvision  # fails where torchvision is built for CUDA
        except RuntimeError as error:
            assert "nms" in str(error), error
        from rclcpb.images import _import_torchvision
        sets = _import_torchvision()
        assert sets is _import_torchvision()  # again: nothing is redefined
        assert all(hasattr(sets, n) for n in ("MNIST", "SVHN", "CIFAR10", "CIFAR100"))
        assert "torchvision" in sys.modules
        print("imported")
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], text=True, capture_output=True, check=False
    )
    assert done.stdout.strip() == "imported", done.stderr


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
