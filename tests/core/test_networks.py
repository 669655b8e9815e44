"""What is kept of a learner: its state between any two steps, and networks on disk."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import runner
from rclcpb.files import RclCpbError, save_tensors
from rclcpb.scenarios import from_arrays

# ------------------------------------------------------------------ state, at any moment


def steps(learner: core.Learner, tasks: int = 2) -> Iterator[str]:
    """The calls that the runner makes; between any two of them the state may be asked."""
    for t in range(learner.learned, tasks):
        data = learner.store(t, core.samples(learner.scenario, t))
        yield "store"
        learner.begin(t, data)
        yield "begin"
        for done in learner.fit(t, data):
            yield f"fit {done.done}"
        learner.end(t)
        yield "end"


def finished(learner: core.Learner, moment: str) -> dict[str, Tensor]:
    """Do what is left of task 2 after this moment; everything the network then knows."""
    t = 1
    data = learner.store(t, core.samples(learner.scenario, t))
    if moment == "store":
        learner.begin(t, data)
    if moment != "end":
        for _ in learner.fit(t, data):
            pass
        learner.end(t)
    return tiny.snapshot(learner.net)


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """As a file would keep it: tensors, and what JSON can say."""
    tensors = {name: value.clone() for name, value in state.items() if isinstance(value, Tensor)}
    facts = {name: value for name, value in state.items() if name not in tensors}
    return tensors | json.loads(json.dumps(facts))


KINDS = [
    ("single", False, {}),
    ("multi", False, {"sampling": "local", "replay_mix": 4, "decay": True}),
    ("single", True, {"distort": "crop-flip", "epochs": 2}),
]


@pytest.mark.parametrize(("heads", "trunk", "changes"), KINDS)
def test_from_any_moment_a_learner_goes_on_bit_for_bit(
    heads: Any, trunk: bool, changes: dict[str, Any]
) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], heads, trunk)
    config = tiny.config(gamma=0.5, **changes)
    learner, states = core.Learner(scenario, config), {}
    for moment in steps(learner):
        if len(learner.chosen) == 2:
            states[moment] = through_json(learner.state())
    whole, answer = tiny.snapshot(learner.net), learner.net_for(0)
    rounds = [f"fit {e + 1}" for e in range(config.epochs)]
    assert list(states) == ["store", "begin", *rounds, "end"]
    for moment, state in states.items():
        other = core.Learner(scenario, config)
        other.load(state)
        assert other.learned == (2 if moment == "end" else 1)
        assert tiny.same(finished(other, moment), whole), moment
        assert other.stored() == 12 and other.notes() == learner.notes()
        assert tiny.same(other.net_for(0).state_dict(), answer.state_dict())


def test_a_state_is_a_copy_that_further_training_leaves_alone() -> None:
    """Also of a fit that goes on from moments that were loaded."""
    scenario, config = tiny.scenario(tiny.PAIRS[:1]), tiny.config(epochs=3)
    learner, states = core.Learner(scenario, config), []
    for moment in steps(learner, 1):
        if moment == "fit 1":
            states.append(learner.state())
    whole = tiny.snapshot(learner.net)
    resumed = core.Learner(scenario, config)
    resumed.load(states[0])
    states.append(resumed.state())
    data = resumed.store(0, core.samples(scenario, 0))
    next(resumed.fit(0, data))  # two of three rounds; then it is stopped
    for state in states:
        resumed.load(state)
        for _ in resumed.fit(0, data):
            pass
        resumed.end(0)
        assert tiny.same(tiny.snapshot(resumed.net), whole)


def test_loading_neither_uses_nor_moves_the_global_generator(
    tmp_path: Path, global_rng: None
) -> None:
    with core.seeded("elsewhere"):
        learner = core.Learner(tiny.scenario(), tiny.config())
        learner.open_head(0)
        state = learner.state()
        learner.net.save(tmp_path / "net")
    learner.load(state)
    core.load(tmp_path / "net")


# ------------------------------------------------------------- starting from a network


def kept(path: Path, **changes: Any) -> core.ProgressiveBNN:
    """A network that learned two tasks and was kept."""
    config = tiny.config(gamma=1e9, **changes)
    run = runner.Run(core.Learner(tiny.scenario(tiny.PAIRS[:2]), config))
    run.finish("rcl-cpb")
    run.method.keep(path, {"tasks": 2})
    return core.load(path)


def test_a_run_started_from_a_kept_network_knows_its_body(tmp_path: Path) -> None:
    """The body is the posterior, and so the prior, of the first task; heads are new."""
    start = kept(tmp_path / "net.safetensors")
    before, config = tiny.snapshot(start), tiny.config(gamma=1e-9, sampling="local", beta=0.3)
    learner = core.Learner(tiny.scenario(), config, start=start)
    assert learner.sizes() == start.sizes() == [20, 16] and not learner.net.heads
    assert tiny.same(tiny.snapshot(learner.net.hidden), tiny.snapshot(start.hidden))
    assert learner.net.settings == config.layer_settings()  # this run's, not that one's
    data = learner.store(0, core.samples(learner.scenario, 0))
    deltas = [int((layer.snr() < 0.3).sum()) for layer in start.hidden]
    learner.begin(0, data)
    assert learner.structure["pruned"] == deltas  # Algorithm 1 as at any later task
    assert len(learner.structure["shared"]) == 2 and learner.net.heads[0].shape[0] == 2
    unpruned = [layer.snr() >= 0.3 for layer in start.hidden]
    for now, old, mask in zip(learner.net.hidden, start.hidden, unpruned, strict=True):
        out, into = old.shape
        prior = now.split(now.prior_mu)[0][:out, :into]
        assert torch.equal(prior[mask], old.split(old.mu)[0][mask])
    record = runner.Run(learner).finish("rcl-cpb")
    assert core.average_accuracy(record.accuracy) > 0.4
    assert tiny.same(before, tiny.snapshot(start))  # the network given is left alone


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_started_run_is_reproducible_and_goes_on_from_its_state(
    tmp_path: Path, heads: Any
) -> None:
    start, config = kept(tmp_path / "net"), tiny.config(epochs=1)
    scenario, ends = tiny.scenario(heads=heads), []
    for stop in (False, True):
        run = runner.Run(core.Learner(scenario, config, start=start))
        next(iter(run))
        if stop:
            state = through_json(run.method.state())
            run.method = core.Learner(scenario, config, start=start)
            run.method.load(state)
        ends.append((run.finish("rcl-cpb").nll, tiny.snapshot(run.method.net)))
    assert ends[0][0] == ends[1][0] and tiny.same(ends[0][1], ends[1][1])


@pytest.mark.parametrize(
    ("size", "trunk", "hidden"),
    [(8, False, (10, 8)), (6, True, (10, 8)), (6, False, (10, 8, 6)), (6, False, (10,))],
)
def test_a_network_that_does_not_fit_is_refused(size: int, trunk: bool, hidden: tuple) -> None:
    """Images of another size, convolutions or not, and another number of layers."""
    kind = {"size": size, "channels": 3 if trunk else 0}
    made = [tiny.arrays(pair, **kind) for pair in tiny.PAIRS]
    scenario = from_arrays(made, trunk=trunk)
    with pytest.raises(RclCpbError, match=r"^the network to start from reads images .*; this run"):
        core.Learner(scenario, tiny.config(hidden=hidden), start=tiny.network())


# ------------------------------------------------------------------------------ on disk


@pytest.mark.parametrize("trunk", [False, True])
def test_a_kept_network_answers_as_it_did(tmp_path: Path, trunk: bool) -> None:
    net = tiny.network(tiny.config(sampling="local", rho_init=-3.0), trunk)
    core.grow(net, [3, 2])
    x, path = tiny.inputs(net), tmp_path / "deep" / "net.safetensors"
    net.save(path, {"scenario": "tiny", "seed": 3})
    loaded = core.load(path)
    assert loaded.about == {"scenario": "tiny", "seed": 3}
    assert loaded.settings == net.settings and loaded.image_shape == net.image_shape
    assert loaded.sizes() == [13, 10] and tiny.same(tiny.snapshot(net), tiny.snapshot(loaded))
    for head in (0, 1):
        answers = []
        for one in (net, loaded):
            with core.seeded("answer"):
                answers.append(core.predict(one, x, head).probabilities)
        assert torch.equal(*answers)
    core.grow(loaded, [1, 1])  # and it can go on growing
    assert loaded(x, 1).shape == (7, 2)


def test_a_network_of_wider_convolutions_is_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.ProgressiveBNN, "growable", property(lambda net: net.body))
    net = tiny.network(trunk=True)
    core.grow(net, [2, 1, 1, 0])
    net.save(tmp_path / "net")
    assert tiny.same(tiny.snapshot(core.load(tmp_path / "net")), tiny.snapshot(net))


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return Path.touch, (self.mark,)


def bad_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every way in which a file may be no kept network."""
    good = folder / "good"
    tiny.network().save(good)
    whole = good.read_bytes()
    changed = bytearray(whole)
    changed[-40] ^= 1
    facts = {"image_shape": [1, 6, 6], "about": {}, "version": "0"}
    layer = {"hidden.0.mu": torch.zeros(370)}
    contents = {
        "empty": b"",
        "text": b"not a network\n",
        "half": whole[: len(whole) // 2],
        "one byte short": whole[:-1],
        "header only": whole[:8],
        "one bit changed": bytes(changed),
        "pickle": pickle.dumps(Payload(folder / "ran")),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        yield name, folder / name
    torch.save({"net": Payload(folder / "ran")}, folder / "torch")
    yield "torch", folder / "torch"
    sound = tiny.network().settings._asdict()
    odd = {
        "a checkpoint": {"stages": [], "spent": 0.0},
        "a list": [1, 2],
        "other settings": facts | {"settings": {"mu": 1}, "shapes": {}},
        "no layers": facts | {"settings": sound, "shapes": {}},
        "other layers": facts | {"settings": sound, "shapes": {"body.3": [2, 2]}},
        "other sizes": facts | {"settings": sound, "shapes": {"hidden.0": [9, 36]}},
        "another size": facts | {"settings": sound, "shapes": {"hidden.0": [11, 36]}},
        "more tensors": facts | {"settings": sound, "shapes": {"hidden.0": [10, 36]}},
    }
    for name, about in odd.items():
        save_tensors(folder / name, layer, about)  # type: ignore[arg-type]
        yield name, folder / name
    yield "missing", folder / "missing"
    yield "a folder", folder


def test_what_is_not_a_kept_network_is_refused_in_one_sentence(tmp_path: Path) -> None:
    names = []
    for name, path in bad_files(tmp_path):
        with pytest.raises(RclCpbError) as refused:
            core.load(path)
        said = str(refused.value)
        assert "\n" not in said and said.removeprefix("cannot read ").startswith(str(path)), name
        if name in ("missing", "a folder"):
            assert "put that right and try again" in said, name
        else:
            assert "a kept network" in said or "not a network of this version" in said, name
        names.append(name)
    assert len(names) == 18
    assert not (tmp_path / "ran").exists()  # nothing was unpickled
    assert core.load(tmp_path / "good").sizes() == [10, 8]
