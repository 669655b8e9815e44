"""Images and scenarios: loaders, downloads, bad files and bad arrays."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

import rclcpb_core as core
import rclcpb_data as data

CPU = torch.device("cpu")
ROOT = Path(data.__file__).parent


def small_images(shape: tuple = (28, 28), classes: int = 10, n: int = 40) -> core.Images:
    rng = np.random.default_rng(0)
    y = (np.arange(n) % classes).astype(np.uint8)
    x = rng.integers(0, 256, (2, n, *shape), dtype=np.uint8)
    return core.Images(x[0], y, x[1], y[::-1].copy())


def save(root: Path, name: str, images: Any) -> Path:
    path = root / f"{name}.npz"
    np.savez_compressed(path, **images._asdict())
    return path


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text and text.endswith(".") and len(text) < 400
    return text


# -------------------------------------------------------------------- embedded digits


def test_embedded_digits(digits: core.Images, raw_digits: tuple) -> None:
    assert digits.x_train.shape == (4000, 28, 28) and digits.x_test.shape[0] == 1000
    assert all(array.dtype == np.uint8 for array in digits)
    assert np.bincount(digits.y_train).tolist() == [400] * 10
    assert np.bincount(digits.y_test).tolist() == [100] * 10
    x, y = raw_digits
    for label in range(10):  # the last 100 of each class are the test
        mine = x[y == label].reshape(-1, 28, 28)
        assert np.array_equal(digits.x_train[digits.y_train == label], mine[:400])
        assert np.array_equal(digits.x_test[digits.y_test == label], mine[400:])


def test_embedded_digits_have_their_checksum(digits: core.Images) -> None:
    assert digits.sha256() == data.SHA256["mnist5k"]
    other = digits._replace(y_test=digits.y_test[::-1])
    assert other.sha256() != data.SHA256["mnist5k"]


# ------------------------------------------------------------------------------- files


def test_npz_is_read_back(tmp_path: Path) -> None:
    images = small_images()
    save(tmp_path, "mnist", images)
    for a, b in zip(core.load_images("mnist", tmp_path), images, strict=True):
        assert np.array_equal(a, b) and a.dtype == b.dtype


def test_where_images_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCLCPB_DATA", raising=False)
    assert core.data_root() == ROOT / "data"
    monkeypatch.setenv("RCLCPB_DATA", str(tmp_path))
    assert core.data_root() == tmp_path
    assert core.data_root(tmp_path / "own") == tmp_path / "own"
    save(tmp_path, "cifar10", small_images((32, 32, 3)))
    assert core.load_images("cifar10").x_train.shape == (40, 32, 32, 3)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 0.9999])
def test_truncated_npz(tmp_path: Path, share: float) -> None:
    path = save(tmp_path, "mnist", small_images())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(core.RclCpbError, match="cannot be read") as caught:
        core.load_images("mnist", tmp_path)
    assert str(path) in one_sentence(caught.value)
    assert "--download" in str(caught.value)


def test_altered_npz(tmp_path: Path) -> None:
    path = save(tmp_path, "mnist", small_images())
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    for content in (b"not an archive", np.zeros(3).tobytes()):
        path.write_bytes(content)
        with pytest.raises(core.RclCpbError, match="cannot be read"):
            core.load_images("mnist", tmp_path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)


def test_an_npz_without_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)


class Harm:
    """Unpickling this leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.trace,)


def test_a_pickle_under_an_npz_name_runs_no_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / "mnist.npz"
    path.write_bytes(pickle.dumps(Harm(trace)))
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)
    harm = np.array([Harm(trace)], dtype=object)
    np.savez(path, x_train=harm, y_train=harm, x_test=harm, y_test=harm)
    with pytest.raises(core.RclCpbError, match="cannot be read"):
        core.load_images("mnist", tmp_path)
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
    with pytest.raises(core.RclCpbError, match="wanted uint8") as caught:
        core.load_images("mnist", tmp_path)
    one_sentence(caught.value)


def test_unknown_names() -> None:
    with pytest.raises(core.RclCpbError, match="no image set 'imagenet': choose from"):
        core.load_images("imagenet")
    with pytest.raises(core.RclCpbError, match="no scenario 'nothing': choose from"):
        core.make_scenario("nothing")
    with pytest.raises(core.RclCpbError, match="seed -1"):
        core.make_scenario("pmnist-5k", -1)


# --------------------------------------------------------------------------- downloads


@pytest.fixture
def sets() -> Any:
    """torchvision.datasets, by the way the core imports it."""
    return data._import_torchvision()


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
    images = core.load_images(name, tmp_path / "new" / "folder")
    assert len(calls) == 2 and all(call[0] == name.upper() and call[2] for call in calls)
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    assert images.x_train.shape == (30, *shape) and images.x_test.shape == (20, *shape)
    assert all(array.dtype == np.uint8 for array in images)
    assert images.y_train.tolist() == [i % 10 for i in range(30)]
    if name == "svhn":
        assert (images.x_train[..., 0] == 7).all() and (images.x_train[..., 1] == 30).all()
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [f"{name}.npz"]
    again = core.load_images(name, tmp_path / "new" / "folder")
    assert len(calls) == 2 and again.sha256() == images.sha256()


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("file corrupted")])
def test_a_download_that_fails_says_what_to_do(
    error: Exception, sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [], error)
    with pytest.raises(core.RclCpbError, match="could not be downloaded") as caught:
        core.load_images("mnist", tmp_path)
    text = one_sentence(caught.value)
    assert str(error) in text and "RCLCPB_DATA" in text and "-5k" in text
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_that_cannot_be_written(
    sets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(sets, monkeypatch, [])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(core.RclCpbError, match="Not a directory") as caught:
        core.load_images("mnist", tmp_path / "file" / "data")
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
    with pytest.raises(core.RclCpbError, match="No space left on device") as caught:
        core.load_images("mnist", tmp_path)
    one_sentence(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_replacing_keeps_the_old_file_until_the_new_one_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f.txt"
    path.write_text("old")

    def half(part: Path) -> None:
        part.write_text("half")
        raise KeyError("some error in between")

    with pytest.raises(KeyError), data.replacing(path) as part:
        half(part)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with data.replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_torchvision_can_be_imported_beside_a_cpu_torch() -> None:
    """In a new process; it also survives an import that failed before."""
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        try:
            import torchvision  # fails where torchvision is built for CUDA
        except RuntimeError as error:
            assert "nms" in str(error), error
        import rclcpb_data
        sets = rclcpb_data._import_torchvision()
        assert sets is rclcpb_data._import_torchvision()  # again: nothing is redefined
        assert all(hasattr(sets, n) for n in ("MNIST", "SVHN", "CIFAR10", "CIFAR100"))
        assert "torchvision" in sys.modules
        print("imported")
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], text=True, capture_output=True, check=False
    )
    assert done.stdout.strip() == "imported", done.stderr


def test_the_core_does_not_import_torchvision() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import rclcpb_core\n"
        "print('torchvision' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


# ---------------------------------------------------------------------- real full sets


def full_set(name: str) -> core.Images:
    root = os.environ.get("RCLCPB_DATA")
    if not root or not (Path(root) / f"{name}.npz").exists():
        pytest.skip(f"needs {name}.npz in the folder that RCLCPB_DATA names")
    return core.load_images(name, root)


def test_full_mnist() -> None:
    images = full_set("mnist")
    assert images.sha256() == data.SHA256["mnist"]
    assert images.x_train.shape == (60000, 28, 28) and len(images.y_test) == 10000
    scenario = core.split_mnist(images)
    assert sum(len(task.y_train) for task in scenario.tasks) == 60000


def test_full_cifar100() -> None:
    images = full_set("cifar100")
    assert images.sha256() == data.SHA256["cifar100"]
    assert images.x_train.shape == (50000, 32, 32, 3)
    assert np.bincount(images.y_test).tolist() == [100] * 100


def test_full_sequence() -> None:
    sets = [full_set(name) for name in ("mnist", "svhn", "cifar10")]
    assert sets[2].sha256() == data.SHA256["cifar10"]
    scenario = core.mnist_svhn_cifar10(*sets)
    assert [len(task.y_train) for task in scenario.tasks] == [60000, 73257, 50000]


# --------------------------------------------------------------------------- scenarios


def test_permutations_are_fixed_by_the_seed() -> None:
    images = small_images()
    one, again, other = (core.permuted_mnist(images, 4, seed=s) for s in (5, 5, 6))
    for t in range(4):
        shuffle = one.tasks[t].permutation
        assert sorted(shuffle.tolist()) == list(range(784))
        assert np.array_equal(shuffle, again.tasks[t].permutation)
        assert not np.array_equal(shuffle, other.tasks[t].permutation)
        for u in range(t):
            assert not np.array_equal(shuffle, one.tasks[u].permutation)
    assert one.sha256() == again.sha256() != other.sha256()


def test_permuted_inputs_are_the_shuffled_pixels() -> None:
    images = small_images()
    scenario = core.permuted_mnist(images, 2)
    for task in scenario.tasks:
        x = scenario.inputs(task.x_train, task, CPU)
        expected = images.x_train.reshape(40, 784)[:, task.permutation] / 255
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
    assert scenario.heads == "multi" and scenario.tasks[0].classes == tuple(range(10))


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_split_mnist(digits: core.Images, heads: Any) -> None:
    scenario = core.split_mnist(digits, heads)
    assert [task.classes for task in scenario.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    for task in scenario.tasks:
        assert set(task.y_train.tolist()) == set(task.classes) == set(task.y_test.tolist())
        assert len(task.y_train) == 800 and len(task.y_test) == 200
        for label in task.classes:
            assert np.array_equal(
                task.x_train[task.y_train == label], digits.x_train[digits.y_train == label]
            )


def test_split_cifar100_draws_the_class_order_from_the_seed() -> None:
    images = small_images((32, 32, 3), 100, 200)
    one, again, other = (core.split_cifar100(images, seed=s) for s in (1, 1, 2))
    orders = [[c for task in s.tasks for c in task.classes] for s in (one, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(100)) != orders[0]
    assert len(one.tasks) == 20 and one.trunk and one.image_shape() == (3, 32, 32)
    task = one.tasks[3]
    x = one.inputs(task.x_train, task, CPU)
    expected = (task.x_train.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_mnist_svhn_cifar10_pads_the_digits() -> None:
    mnist, colour = small_images(), small_images((32, 32, 3))
    scenario = core.mnist_svhn_cifar10(mnist, colour, colour)
    first = scenario.tasks[0]
    assert first.x_train.shape == (40, 32, 32, 3) and scenario.heads == "multi"
    for channel in range(3):
        inner = first.x_train[:, 2:30, 2:30, channel]
        assert np.array_equal(inner, mnist.x_train)
    border = np.ones((32, 32), bool)
    border[2:30, 2:30] = False
    assert (first.x_train[:, border] == 0).all()
    assert [task.name for task in scenario.tasks] == ["MNIST", "SVHN", "CIFAR-10"]
    assert scenario.trunk and np.array_equal(scenario.tasks[1].x_test, colour.x_test)


def test_targets_are_columns_of_the_tasks_head() -> None:
    tasks = ((7, 3), (5, 9), (3, 1))
    made = [tiny.arrays(classes) for classes in tasks]
    single, multi = (core.from_arrays(made, heads) for heads in ("single", "multi"))
    assert [single.columns(t) for t in range(3)] == [(3, 7), (3, 7, 5, 9), (3, 7, 5, 9, 1)]
    labels = np.array([3, 1, 1, 3])
    assert single.targets(labels, 2, CPU).tolist() == [0, 4, 4, 0]
    assert multi.columns(2) == (1, 3)
    assert multi.targets(labels, 2, CPU).tolist() == [1, 0, 0, 1]
    assert single.targets(np.array([9, 5], np.uint8), 1, CPU).tolist() == [3, 2]
    assert single.targets(labels, 2, CPU).dtype == torch.long


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=8, unique=True))
def test_any_integers_can_be_labels(classes: list[int]) -> None:
    """-1 and +1 are two classes, and a billion needs no table of a billion."""
    x, y = np.zeros((len(classes), 4), np.uint8), np.array(classes)
    scenario = core.from_arrays([(x, y, x, y)])
    columns = scenario.columns(0)
    targets = scenario.targets(y, 0, CPU).tolist()
    assert [columns[i] for i in targets] == classes


def test_every_scenario_by_name(
    tmp_path: Path, fast_digits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, "mnist", small_images())
    save(tmp_path, "cifar100", small_images((32, 32, 3), 100, 200))
    for name in ("svhn", "cifar10"):
        save(tmp_path, name, small_images((32, 32, 3)))
    expected = {
        "pmnist": (10, "multi"),
        "pmnist-shared": (10, "single"),
        "mh-smnist": (5, "multi"),
        "ta-smnist": (5, "single"),
        "mh-cifar100": (20, "multi"),
        "ta-cifar100": (20, "single"),
        "mnist-svhn-cifar10": (3, "multi"),
    }
    for name in core.SCENARIOS:
        scenario = core.make_scenario(name, 0, tmp_path)
        tasks, heads = expected[name.removesuffix("-5k")]
        assert (len(scenario.tasks), scenario.heads) == (tasks, heads)
        assert scenario.name == name
        assert scenario.trunk == ("cifar" in name)
        total = 4000 if name.endswith("-5k") else 40
        if name.startswith(("mh-smnist", "ta-smnist")):
            assert sum(len(task.y_train) for task in scenario.tasks) == total


def test_holdout_takes_its_test_set_from_the_training_images() -> None:
    scenario = tiny.scenario(n=30)
    held = core.holdout(scenario)
    for task, whole in zip(held.tasks, scenario.tasks, strict=True):
        assert len(task.y_test) == 10 and len(task.y_train) == 50
        assert np.array_equal(task.x_test, whole.x_train[5::6])
        rest = np.delete(whole.x_train, slice(5, None, 6), axis=0)
        assert np.array_equal(task.x_train, rest)


def test_checksum_of_a_scenario_sees_every_array() -> None:
    base = tiny.scenario()
    x, y, x_test, y_test = tiny.arrays((0, 1))
    sums = {
        core.from_arrays([task]).sha256()
        for task in [
            (x, y, x_test, y_test),
            (255 - x, y, x_test, y_test),
            (x, 1 - y, x_test, y_test),
            (x, y, 255 - x_test, y_test),
            (x, y, x_test, 1 - y_test),
        ]
    }
    assert len(sums) == 5 and base.sha256() == tiny.scenario().sha256() not in sums


# --------------------------------------------------------------------- a reader's data


def test_from_arrays_reads_uint8_and_floats() -> None:
    x, y, *test = tiny.arrays((0, 1))
    bytes_, floats = (core.from_arrays([(a, y, *test)]) for a in (x, x / 255))
    a, b = (s.inputs(s.tasks[0].x_train, s.tasks[0], CPU) for s in (bytes_, floats))
    torch.testing.assert_close(a, b)
    assert a.dtype == b.dtype == torch.float and a.max() == 1 and a.shape == (48, 36)


def test_from_arrays_pads_to_the_largest_and_remembers_the_size() -> None:
    small, large = tiny.arrays((0, 1), size=4), tiny.arrays((2, 3), size=6)
    scenario = core.from_arrays([small, large])
    first, second = scenario.tasks
    assert first.x_train.shape == second.x_train.shape == (48, 6, 6)
    assert np.array_equal(first.x_train[:, :4, :4], small[0])
    assert first.x_train[:, 4:].max() == 0 == first.x_train[:, :, 4:].max()
    assert np.array_equal(first.x_test[:, :4, :4], small[2])
    assert (first.inputs, second.inputs) == (16, 36)
    assert core.required_neurons(10, second, first) == pytest.approx(15)


def test_from_arrays_takes_vectors_images_and_colour() -> None:
    y = np.array([0, 1, 0, 1])
    for shape, expected in (
        ((9,), (1, 1, 9)),
        ((4, 5), (1, 4, 5)),
        ((4, 5, 3), (3, 4, 5)),
    ):
        x = np.random.default_rng(0).random((4, *shape))
        scenario = core.from_arrays([(x, y, x, y)])
        assert scenario.image_shape() == expected
        assert scenario.inputs(x, scenario.tasks[0], CPU).shape == (4, x[0].size)
        core.learn(scenario, tiny.config(coreset=1, epochs=1))


def test_reading_does_not_change_a_readers_arrays() -> None:
    x, y = np.full((4, 5, 5), 0.75, np.float32), np.array([0, 1, 0, 1])
    task = core.from_arrays([(x, y, x, y)]).tasks[0]
    scenario = core.Scenario("own", (task,), "single", center=0.5, scale=0.25)
    result = scenario.inputs(task.x_train, task, CPU)
    assert (result == 1).all() and (task.x_train == 0.75).all() and (x == 0.75).all()


GOOD = tiny.arrays((0, 1))


def changed(place: int, value: Any) -> tuple:
    return (*GOOD[:place], value, *GOOD[place + 1 :])


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "give each task as"),
        ([GOOD[:3]], "give each task as"),
        ([changed(1, GOOD[1][:-1])], "wanted"),  # a label short
        ([changed(1, GOOD[1][:, None])], "wanted"),
        (
            [changed(0, GOOD[0][:, :5])],
            r"task 0: training images \(5, 6\), test",
        ),
        (
            [changed(3, np.full_like(GOOD[3], 7))],
            r"labels \[7\] are outside its classes",
        ),
        ([changed(3, np.zeros_like(GOOD[3]))], r"classes \[1\] have no samples"),
        (
            [changed(0, np.where(GOOD[0] > 250, np.nan, GOOD[0]))],
            "NaN or infinite pixels",
        ),
        (
            [changed(2, np.where(GOOD[2] > 250, np.inf, GOOD[2]))],
            "NaN or infinite pixels",
        ),
        ([changed(0, GOOD[0].astype(int))], "images are int64; give uint8"),
        ([changed(0, GOOD[0] > 9)], "images are bool; give uint8"),
        ([changed(1, GOOD[1] / 2)], "labels are float64; give integers"),
        ([changed(1, GOOD[1].astype(str))], "labels are .*; give integers"),
        ([GOOD, tiny.arrays((2, 3), channels=3)], "the same number of dimensions"),
        ([tuple(a[:0] for a in GOOD)], "wanted"),  # an empty task
        ([(GOOD[0][:, 0, 0], GOOD[1], GOOD[2][:, 0, 0], GOOD[3])], "wanted"),
    ],
)
def test_bad_arrays_are_one_clear_sentence(tasks: list, message: str) -> None:
    with pytest.raises(core.RclCpbError, match=message) as caught:
        core.from_arrays(tasks)
    one_sentence(caught.value)


def test_a_trunk_needs_images() -> None:
    for kind in ({}, {"size": 2, "channels": 3}):
        with pytest.raises(core.RclCpbError, match="trunk needs images"):
            core.from_arrays([tiny.arrays((0, 1), **kind)], trunk=True)


def test_tasks_of_one_scenario_have_one_shape() -> None:
    tasks = tuple(core.from_arrays([tiny.arrays((0, 1), size=s)]).tasks[0] for s in (4, 6))
    with pytest.raises(core.RclCpbError, match="from_arrays pads them"):
        core.Scenario("mixed", tasks, "single")


def test_a_missing_class_in_an_image_set_is_named() -> None:
    images = small_images(classes=9)
    with pytest.raises(core.RclCpbError, match=r"classes \[9\] have no samples"):
        core.split_mnist(images)
