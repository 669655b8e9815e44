"""What a kept network is asked, exported and described as: the commands, as a user meets them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from running import KINDS, one_line

import rclcpb_core as core
from rclcpb import ContinualClassifier, commands, inference, jobs, presets
from rclcpb.export import PlainNetwork, kept_weights, plain_network
from rclcpb.files import RclCpbError
from rclcpb.jobs import Job, run_job
from rclcpb.method import samples
from rclcpb.opened import Opened, ask_file, images_in, open_kept

STAIRS = "memoryless, heads"  # whose old units never read new ones
EVERY = ("one head", "plus, heads", "convolutions", STAIRS)
Kept = Callable[..., Path]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """The network that a run of a kind kept; its scenario is found under its name."""

    def made(name: str, **changes: Any) -> Path:
        kind = KINDS[name]
        scenario = tiny.scenario(**kind.scenario)
        for module in (jobs, commands):
            monkeypatch.setattr(module, "make_scenario", lambda *a: scenario)
        config = tiny.config(**(kind.config | {"epochs": 6} | changes))
        job = Job(scenario.name, kind.method, 0, config, tmp_path / "run.json", keep=True)
        run_job(job)
        return job.network

    return made


def asked(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def raw(opened: Opened, n: int = 12) -> np.ndarray:
    """Images as a user has them: bytes."""
    return np.random.default_rng(2).integers(0, 255, (n, *opened.shape), dtype=np.uint8)


# ------------------------------------------------------------------------------- predict


def test_a_network_of_shuffled_images_is_asked_about_no_others(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would answer at random; the card of the network says why it does not."""
    order, plain = np.arange(36)[::-1].copy(), tiny.scenario(heads="multi")
    tasks = tuple(replace(task, permutation=order) for task in plain.tasks)
    monkeypatch.setattr(tiny, "scenario", lambda **_: replace(plain, tasks=tasks))
    path = kept("heads")
    with pytest.raises(RclCpbError, match="pixels are shuffled, each task's in its own way"):
        ask_file(path, raw(open_kept(path)), None, 0)
    assert "pixels are shuffled" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize("name", EVERY)
def test_predict_answers_as_the_network_does(
    name: str, kept: Kept, command: Callable, tmp_path: Path
) -> None:
    path, scenario = kept(name), tiny.scenario(**KINDS[name].scenario)
    multi, task = scenario.heads == "multi", scenario.tasks[1]
    np.savez(tmp_path / "images.npz", x=task.x_test, y=task.y_test)
    more = ["--task", task.name] if multi else []
    code, out, err = command("predict", str(path), "images.npz", "--out", "a.csv", *more)
    assert code == 0, err
    rows, net = asked(tmp_path / "a.csv"), core.load(path)
    assert [row["image"] for row in rows] == [*map(str, range(len(task.y_test)))]
    answers = core.predict(net, samples(scenario, 1, "test").x, 1 if multi else 0, 2000)
    p = np.array([float(row["probability"]) for row in rows])
    told = answers.probabilities.max(1).values.numpy()
    assert np.abs(p - told).mean() < 0.12  # 4 draws against 2,000
    doubt = np.array([[float(row[k]) for k in ("entropy", "mutual_information")] for row in rows])
    assert (doubt[:, 0] >= doubt[:, 1] - 1e-6).all() and (doubt[:, 1] > -1e-6).all()
    right = np.mean([int(row["label"]) for row in rows] == task.y_test)
    assert f"{100 * right:.2f} %" in out and right > 0.6
    assert ("task" in rows[0]) == multi


def test_predict_without_a_task_asks_every_head(
    kept: Kept, command: Callable, tmp_path: Path
) -> None:
    path = kept("plus, heads", epochs=20)
    scenario = tiny.scenario(heads="multi")
    np.savez(tmp_path / "images.npz", scenario.tasks[2].x_test)  # an array without a name
    assert command("predict", str(path), "images.npz")[0] == 0
    rows = asked(tmp_path / "answers.csv")
    classes = {task.name: task.classes for task in scenario.tasks}
    assert {row["task"] for row in rows} <= set(classes)
    assert all(int(row["label"]) in classes[row["task"]] for row in rows)


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_predict_reads_a_saved_classifier_too(
    heads: Any, command: Callable, tmp_path: Path
) -> None:
    words = np.array(["ant", "bee", "cow", "dog"])
    made = ContinualClassifier(tiny.config(), heads)
    for t, pair in enumerate([(0, 1), (2, 3)]):
        x, y = tiny.images(pair, 24, np.random.default_rng(t))
        made.learn(x, words[y], task=f"part {t}")
    made.save(tmp_path / "mine.safetensors")
    np.savez(tmp_path / "new.npz", x=x, y=words[y])
    for more in ([], ["--task", "part 1"]):
        code, out, err = command("predict", "mine.safetensors", "new.npz", *more)
        assert code == 0, err
        name = more[1] if more else None
        mine = made.predict(x, name).tolist()
        assert [row["label"] for row in asked(tmp_path / "answers.csv")] == mine
        assert f"{100 * made.score(x, words[y], name):.2f} %" in out


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 5, 5), np.uint8)}, r"this network reads \(N, 6, 6\)"),
        ({"x": np.full((3, 6, 6), np.nan, np.float32)}, "NaN"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, "holds no images"),
        ({"x": np.array([object()], dtype=object)}, "holds no images"),
        ({"x": np.zeros((0, 6, 6), np.uint8)}, "empty"),
    ],
)
def test_images_that_are_none_are_refused(
    arrays: dict, words: str, kept: Kept, command: Callable, tmp_path: Path
) -> None:
    path = kept("heads")
    np.savez(tmp_path / "images.npz", **arrays)
    code, _, err = command("predict", str(path), "images.npz")
    assert code == 2 and one_line(err) and not (tmp_path / "answers.csv").exists()
    with pytest.raises(RclCpbError, match=words):
        open_kept(path).ask(images_in(tmp_path / "images.npz")[0])


def test_what_cannot_be_asked_is_refused(kept: Kept, command: Callable, tmp_path: Path) -> None:
    path = kept("heads")
    np.savez(tmp_path / "images.npz", x=tiny.scenario().tasks[0].x_test)
    code, _, err = command("predict", str(path), "images.npz", "--task", "nine")
    assert code == 2 and one_line(err) and "choose from" in err
    core.load(path).save(tmp_path / "bare.safetensors")
    for command_line in (
        ["predict", "bare.safetensors", "images.npz"],
        ["export", "bare.safetensors"],
    ):
        code, _, err = command(*command_line)
        assert code == 2 and one_line(err) and "does not say what it reads" in err
    (tmp_path / "no.npz").write_bytes(b"no")
    assert command("predict", str(path), "no.npz")[0] == 2


# -------------------------------------------------------------------------------- export


@pytest.mark.parametrize("name", EVERY)
def test_a_whole_export_is_the_network_of_means(name: str, kept: Kept, tmp_path: Path) -> None:
    opened = open_kept(kept(name))
    images = raw(opened)
    plain = plain_network(opened)
    with torch.no_grad():
        for head, found in enumerate(plain(torch.from_numpy(images) / 255)):
            seen = opened.net.seen_by(head)  # by the core's own path
            told = seen(opened.inputs(images), head, core.by_means).softmax(1)
            assert torch.allclose(found, told, atol=1e-6)
    plain.save(tmp_path / "plain.safetensors")
    again = PlainNetwork.load(tmp_path / "plain.safetensors")
    ones = torch.ones(1, *opened.shape)
    pairs = zip(plain(ones), again(ones), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs) and again.facts == plain.facts


@pytest.mark.parametrize("name", EVERY)
def test_what_stays_has_the_highest_snr(name: str, kept: Kept) -> None:
    net = open_kept(kept(name)).net
    with torch.no_grad():
        for layer in net.growable:
            layer.rho.normal_()  # or every width would be alike
    snr = torch.cat([layer.snr().flatten() for layer in net.growable])
    for keep in (0.1, 0.37, 1.0):
        mask = torch.cat([one.flatten() for one in kept_weights(net, keep)])
        assert mask.sum() == round(keep * len(snr))
        assert keep == 1 or snr[mask].min() >= snr[~mask].max()
    for keep in (0, -1, 1.2, math.nan):
        with pytest.raises(RclCpbError, match="share above 0"):
            kept_weights(net, keep)


def test_an_export_drops_hidden_weights_alone(kept: Kept) -> None:
    opened = open_kept(kept(STAIRS))
    whole, small = plain_network(opened), plain_network(opened, 0.2)
    left, total = small.weights()
    assert total == sum(layer.snr().numel() for layer in opened.net.growable)
    assert left == round(0.2 * total)
    for a, b in zip(whole.hidden, small.hidden, strict=True):
        assert (
            torch.equal(a.bias, b.bias)
            and (b.weight[b.weight != 0] == a.weight[b.weight != 0]).all()
        )
    for a, b in zip(whole.heads, small.heads, strict=True):
        assert torch.equal(a.weight, b.weight)
    steps = opened.net.hidden[1].steps
    assert len(steps) > 1  # it has grown, and the old rows read nothing of what is new
    units, reads = steps[0]
    assert (whole.hidden[1].weight[:units, reads:] == 0).all()


def test_export_says_what_it_costs(kept: Kept, command: Callable, tmp_path: Path) -> None:
    path = kept("one head", epochs=20, replay_steps=100)
    code, out, err = command("export", str(path), "--keep", "0.3")
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    small = PlainNetwork.load(tmp_path / "run-keep0.3.plain.safetensors")
    assert lines[0][0] == f"{small.weights()[0]:,}"
    scenario = tiny.scenario()
    right = []
    for task in scenario.tasks:
        answer = small(torch.tensor(task.x_test) / 255)[0].argmax(1).numpy()
        right.append(100 * np.mean(np.array(small.facts["labels"][0])[answer] == task.y_test))
    assert float(lines[-1][-1]) == pytest.approx(np.mean(right), abs=0.01)
    assert float(lines[-1][-3]) > 80  # the Bayesian network
    size = (tmp_path / "run-keep0.3.plain.safetensors").stat().st_size
    command("export", str(path), "--out", "whole.safetensors")
    assert size < (tmp_path / "whole.safetensors").stat().st_size < path.stat().st_size


def test_an_exported_network_has_no_doubt_to_ask_for(
    kept: Kept, command: Callable, tmp_path: Path
) -> None:
    command("export", str(kept("one head")), "--out", "plain.safetensors")
    np.savez(tmp_path / "images.npz", x=np.zeros((1, 6, 6)))
    code, _, err = command("predict", "plain.safetensors", "images.npz")
    assert code == 2 and one_line(err) and "exported network" in err


def test_export_without_the_images_exports(
    kept: Kept, command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept("one head")
    other = tiny.scenario(seed=7)
    monkeypatch.setattr(commands, "make_scenario", lambda *a: other)
    code, out, _ = command("export", str(path), "--keep", "0.5")
    assert code == 0 and "not known here: the images here are not those" in out
    assert (tmp_path / "run-keep0.5.plain.safetensors").exists()
    code, _, err = command("export", str(path), "--out", str(path))
    assert code == 2 and "the network itself" in err and open_kept(path)


def test_a_classifier_of_a_table_is_exported_with_its_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    x = rng.normal(size=(80, 3)) * [1, 1000, 0.01] + 4 * y[:, None] * [1, 1000, 0.01]
    made = ContinualClassifier(tiny.config(epochs=20)).learn(x, np.array(["no", "yes"])[y])
    made.save(tmp_path / "table.safetensors")
    plain = plain_network(open_kept(tmp_path / "table.safetensors"))
    told = np.array(plain.facts["labels"][0])[plain(torch.from_numpy(x).float())[0].argmax(1)]
    assert (
        np.mean(told == made.predict(x)) > 0.95
        and np.mean(told == np.array(["no", "yes"])[y]) > 0.9
    )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("keep", [0.1, 1.0])
def test_onnxruntime_gives_the_same_answers(
    name: str, keep: float, kept: Kept, command: Callable, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="pip install 'rclcpb[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'rclcpb[onnx]'")
    path = kept(name)
    code, out, err = command("export", str(path), "--to", "onnx", "--keep", f"{keep}")
    assert code == 0, err
    assert float(out.split("off by ")[1].split()[0]) < 1e-5
    session = runtime.InferenceSession(str(tmp_path / f"run-keep{keep:g}.onnx"))
    opened = open_kept(path)
    images = raw(opened)
    pixels = images.astype(np.float32) / 255
    told = plain_network(opened, keep)(torch.from_numpy(pixels))
    found = session.run(None, {"images": pixels})
    assert [one.name for one in session.get_outputs()] == [
        f"probabilities: {t}" for t in opened.tasks
    ]
    for a, b in zip(found, told, strict=True):
        assert np.allclose(a, b.numpy(), atol=1e-5)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["rclcpb"])
    assert facts["labels"] == opened.labels


def test_without_the_extra_onnx_is_one_sentence(
    kept: Kept, command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept("heads")

    def missing(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("rclcpb.writers.importlib.import_module", missing)
    code, _, err = command("export", str(path), "--to", "onnx")
    assert code == 2 and one_line(err) and "rclcpb[onnx]" in err


# --------------------------------------------------------------------------- model card


@pytest.mark.parametrize("name", EVERY)
def test_a_kept_network_has_its_card_beside_it(name: str, kept: Kept) -> None:
    path = kept(name)
    about, net = core.load(path).about, core.load(path)
    card = path.with_suffix(".md").read_text("utf-8")
    for task, accuracy in zip(about["tasks"], about["accuracy"], strict=True):
        assert f"| {task} |" in card and f"{100 * accuracy:.1f} %" in card
    assert f"{sum(p.numel() for p in net.parameters()):,}" in card
    assert ", ".join(map(str, net.sizes())) in card
    assert ("without that fit" in card) == (name == "plus, heads")
    assert "{" not in card.split("```")[0]


# ------------------------------------------------------------------------ task inference


def test_the_task_is_found_by_the_least_doubt(
    kept: Kept, command: Callable, tmp_path: Path
) -> None:
    path = kept("plus, heads", epochs=20)
    (tmp_path / "found.jsonl").write_text('{"scenario": "other"}\n')
    for _ in range(2):  # the second time in place of the first
        code, out, err = command("tasks", str(path), "--out", "found.jsonl")
        assert code == 0, err
    other, found = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    assert other == {"scenario": "other"} and found["seed"] == 0
    scenario, net = tiny.scenario(heads="multi"), core.load(path)
    counts = np.zeros((3, 3), int)
    for j in range(3):
        x = samples(scenario, j, "test").x
        entropy = [core.predict(net, x, head, 400).entropy for head in range(3)]
        counts[j] = np.bincount(torch.stack(entropy).argmin(0), minlength=3)
    assert np.abs(np.array(found["heads"]) - counts).max() <= 6  # of 24; 4 draws against 400
    share = np.mean(np.diag(found["heads"]) / np.sum(found["heads"], 1))
    assert found["entropy"]["task"] == pytest.approx(share)
    assert found["entropy"]["label"] <= found["entropy"]["task"]
    assert f"{100 * found['told']:.2f} %" in out and found["chance"] == pytest.approx(1 / 3)
    assert set(inference.DOUBTS) <= set(found)


def test_one_head_has_no_task_to_find(kept: Kept, command: Callable) -> None:
    code, _, err = command("tasks", str(kept("one head")))
    assert code == 2 and one_line(err) and "none to find" in err


def test_a_file_that_is_not_of_tasks_is_left_alone(
    kept: Kept, command: Callable, tmp_path: Path
) -> None:
    path = kept("heads")
    for content in (b"not json", b"\xff\xfe", b"[1]", b"3", b"[" * 10**5):
        (tmp_path / "mine.txt").write_bytes(content)
        code, out, err = command("tasks", str(path), "--out", "mine.txt")
        assert code == 2 and not out and one_line(err) and "choose another --out" in err
        assert (tmp_path / "mine.txt").read_bytes() == content


# ------------------------------------------------------------- what is answered, and wrong


def test_images_come_in_the_unit_that_was_learned(
    kept: Kept, command: Callable, tmp_path: Path
) -> None:
    """Bytes are 0 to 1; the same numbers of another kind are refused, and so is what is too far."""
    path, task = kept("one head"), tiny.scenario().tasks[0]
    np.savez(tmp_path / "bytes.npz", x=task.x_test)
    np.savez(tmp_path / "floats.npz", x=task.x_test / 255)
    for name in ("bytes", "floats"):
        assert command("predict", str(path), f"{name}.npz", "--out", f"{name}.csv")[0] == 0
    assert [r["label"] for r in asked(tmp_path / "bytes.csv")] == [
        r["label"] for r in asked(tmp_path / "floats.csv")
    ]
    for other in (task.x_test.astype(float), task.x_test.astype(int), task.x_test * 1e30):
        np.savez(tmp_path / "other.npz", x=other)
        code, _, err = command("predict", str(path), "other.npz", "--out", "other.csv")
        assert code == 2 and one_line(err) and not (tmp_path / "other.csv").exists()
    np.savez(tmp_path / "words.npz", x=task.x_test, y=task.y_test.astype(str))
    code, out, err = command("predict", str(path), "words.npz", "--out", "words.csv")
    assert code == 2 and "labels of one kind" in err and "right, by" not in out


def test_nothing_is_fetched_to_look_at_a_network(
    kept: Kept, command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept("heads")
    net = core.load(path)
    net.save(path, net.about | {"scenario": "mh-smnist"})
    monkeypatch.setattr(commands, "make_scenario", presets.make_scenario)
    monkeypatch.setattr("rclcpb.images.download", lambda *_: pytest.fail("fetched"))
    code, out, _ = command("export", str(path), "--data-dir", str(tmp_path))
    assert code == 0 and "its accuracy is not known here: no " in out and "--download" in out
    code, _, err = command("tasks", str(path), "--data-dir", str(tmp_path))
    assert code == 2 and one_line(err) and "rclcpb data mnist --download" in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": [[[1], [2]], [2, 3], [4, 5]]}, "labels that are none"),
        ({"config": None}, "does not say what it reads"),
        ({"config": {"test_samples": "x"}}, "test_samples"),
        ({"inputs": {"center": "x", "scale": 1}}, "does not say what it reads"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(change: dict, words: str, kept: Kept) -> None:
    path = kept("heads")
    net = core.load(path)
    net.save(path, net.about | change)
    with pytest.raises(RclCpbError, match=words):
        open_kept(path).ask(raw(open_kept(path)))
