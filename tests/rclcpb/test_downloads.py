"""Downloads: https only, said before, verified after; whole or not there."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from on_disk import one_sentence

from rclcpb import downloads, images
from rclcpb.downloads import KINDS, import_torchvision, parts_of
from rclcpb.files import RclCpbError
from rclcpb.images import load_images

ROOT = Path(__file__).resolve().parents[2]
CONTENT = b"what lies at the address " * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def sets() -> Any:
    """torchvision.datasets, as the loaders import it."""
    return import_torchvision()


class Web:
    """The addresses that were asked for, and what lies there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.content: Callable[[str], bytes] = lambda url: CONTENT
        monkeypatch.setattr(urllib.request, "build_opener", lambda *handlers: self)

    def open(self, url: str, timeout: float) -> BytesIO:
        assert url.startswith("https://") and 0 < timeout < 600
        self.asked.append(url)
        return BytesIO(self.content(url))


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    """Stands for the network; what is downloaded is none of the published sets."""
    monkeypatch.setattr(images, "SHA256", {})
    return Web(monkeypatch)


def fake(sets: Any, monkeypatch: pytest.MonkeyPatch, calls: list) -> None:
    """Data set classes that make a few images up where their files are whole."""

    class Made:
        mirrors, resources = ("http://old/", "https://new/"), (("images.gz", MD5),)
        url, filename, tgz_md5 = "http://old/set.tar.gz", "set.tar.gz", MD5
        split_list: ClassVar = {
            split: (f"http://old/{split}.mat", f"{split}.mat", MD5) for split in ("train", "test")
        }

        def __init__(
            self, root: str, train: bool = True, download: bool = False, split: str = ""
        ) -> None:
            name = type(self).__name__
            calls.append((name, train, download, split))
            assert [p.read_bytes() for p in Path(root).rglob("*.*")] == [CONTENT] * (
                2 if name == "SVHN" else 1
            )
            n = 30 if train and split != "test" else 20
            shape = {"MNIST": (28, 28), "SVHN": (3, 32, 32)}.get(name, (32, 32, 3))
            self.data: Any = np.full((n, *shape), n, np.uint8)
            labels = np.arange(n) % 10
            if name == "SVHN":
                self.data[:, 0] = 7  # the red channel
                self.labels = labels
            elif name == "MNIST":
                self.data, self.targets = torch.from_numpy(self.data), torch.tensor(labels)
            else:
                self.targets = labels.tolist()

    for name in KINDS.values():
        monkeypatch.setattr(sets, name, type(name, (Made,), {}))


@pytest.mark.parametrize("name", KINDS)
def test_download_writes_the_npz_once(
    name: str, sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list = []
    fake(sets, monkeypatch, calls)
    found = load_images(name, tmp_path / "new" / "folder")
    assert len(calls) == 2 and all(call[0] == name.upper() and call[2] for call in calls)
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    assert found.x_train.shape == (30, *shape) and found.x_test.shape == (20, *shape)
    assert all(array.dtype == np.uint8 for array in found)
    assert found.y_train.tolist() == [i % 10 for i in range(30)]
    if name == "svhn":
        assert (found.x_train[..., 0] == 7).all() and (found.x_train[..., 1] == 30).all()
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [f"{name}.npz"]
    again, asked = load_images(name, tmp_path / "new" / "folder"), len(web.asked)
    assert len(calls) == 2 and again.sha256() == found.sha256()
    assert asked == (2 if name == "svhn" else 1)


def test_it_says_what_it_downloads_and_from_where_before_it_does(
    sets: Any,
    web: Web,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake(sets, monkeypatch, [])

    def said(url: str) -> bytes:
        assert f"downloading {url} (for {tmp_path})" in capsys.readouterr().err
        return CONTENT

    web.content = said
    for name in KINDS:
        load_images(name, tmp_path)
    assert len(web.asked) == 5


@pytest.mark.parametrize("name", KINDS)
def test_what_torchvision_would_ask_over_http_is_asked_over_https(name: str, sets: Any) -> None:
    """Its real addresses; each with the checksum it has there."""
    parts = parts_of(name, getattr(sets, KINDS[name]))
    assert len(parts) == {"mnist": 4, "svhn": 2}.get(name, 1)
    for part in parts:
        assert part.url.startswith("https://") and part.url.endswith(Path(part.path).name)
        assert len(part.md5) == 32
    assert "http:" in str((sets.SVHN.split_list, sets.MNIST.mirrors))  # there still are such


def test_a_server_that_sends_on_to_http_is_not_followed() -> None:
    request = urllib.request.Request("https://new/images.gz")
    handler: Any = downloads.SecureOnly()
    with pytest.raises(OSError, match="http://old/x, which is not https"):
        handler.redirect_request(request, None, 302, "Found", {}, "http://old/x")
    followed = handler.redirect_request(request, None, 302, "Found", {}, "https://new/y")
    assert followed.full_url == "https://new/y"


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"x", b"x" * len(CONTENT)])
def test_a_download_cut_short_or_changed_is_not_kept(
    content: bytes, sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])
    web.content = lambda url: content
    with pytest.raises(RclCpbError, match="cut short or is another file") as caught:
        load_images("mnist", tmp_path)
    assert "https://new/images.gz" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_the_published_set_is_not_kept(
    sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the checksum of its files no help."""
    fake(sets, monkeypatch, [])
    monkeypatch.setattr(images, "SHA256", {"mnist": "0" * 64})
    with pytest.raises(RclCpbError, match="not the published image set, and was not kept"):
        load_images("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_already_serve_if_they_are_whole(
    sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])
    there = tmp_path / "MNIST" / "raw" / "images.gz"
    there.parent.mkdir(parents=True)
    there.write_bytes(CONTENT[:-1])
    with pytest.raises(RclCpbError, match="cut short or is another file") as caught:
        load_images("mnist", tmp_path)
    assert str(there) in str(caught.value)
    there.write_bytes(CONTENT)
    load_images("mnist", tmp_path)
    assert not web.asked and there.exists()


def test_torchvision_unpacks_what_was_fetched(
    sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real MNIST of torchvision, with files of three images; it asks nobody itself."""

    def idx(array: np.ndarray) -> bytes:
        sizes = np.array(array.shape, ">i4").tobytes()
        return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes(), mtime=0)

    x = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    y = np.array([2, 0, 1], np.uint8)
    made = [idx(x), idx(y), idx(255 - x), idx(y[::-1])]
    files = dict(zip((name for name, _ in sets.MNIST.resources), made, strict=True))
    digests = [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]
    monkeypatch.setattr(sets.MNIST, "resources", digests)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: pytest.fail("asked again"))
    web.content = lambda url: files[url.rpartition("/")[2]]
    found = load_images("mnist", tmp_path)
    assert np.array_equal(found.x_train, x) and found.y_train.tolist() == [2, 0, 1]
    assert np.array_equal(found.x_test, 255 - x) and found.y_test.tolist() == [1, 0, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["mnist.npz"]


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("file corrupted")])
def test_a_download_that_fails_says_what_to_do(
    error: Exception, sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])

    def failing(url: str) -> bytes:
        raise error

    web.content = failing
    with pytest.raises(RclCpbError, match="could not be downloaded") as caught:
        load_images("mnist", tmp_path)
    text = one_sentence(caught.value)
    assert str(error) in text and "RCLCPB_DATA" in text and "-5k" in text
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_that_cannot_be_written(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RclCpbError, match="Not a directory") as caught:
        load_images("mnist", tmp_path / "file" / "data")
    one_sentence(caught.value)
    assert (tmp_path / "file").read_text() == "in the way" and not web.asked


def test_a_disk_that_fills_up_leaves_no_half_file(
    sets: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        from rclcpb.downloads import import_torchvision
        sets = import_torchvision()
        assert sets is import_torchvision()  # again: nothing is redefined
        assert all(hasattr(sets, n) for n in ("MNIST", "SVHN", "CIFAR10", "CIFAR100"))
        assert "torchvision" in sys.modules
        print("imported")
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], text=True, capture_output=True, check=False
    )
    assert done.stdout.strip() == "imported", done.stderr
