"""The registry: each method's and each scenario's name, title, settings and paper rows, once.

    preset("ta-smnist", "vcl") -> Config        make_scenario("ta-smnist-5k") -> Scenario

The command line, the tables, the figures and the chapters read it; the scenarios' part of it
is in catalogue.py, the other methods' settings are in methods/settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rclcpb import natural
from rclcpb.catalogue import NAMES, SCENARIOS, SMALL, TABLES, ScenarioEntry, entry, make_scenario
from rclcpb.files import RclCpbError
from rclcpb.method import Method
from rclcpb.methods.control import StoredImagesAlone
from rclcpb.methods.gem import GEM
from rclcpb.methods.icarl import ICaRL
from rclcpb.methods.penalties import EWC, LP, SI, OnlineEWC, RWalk
from rclcpb.methods.plain import Finetune, Joint, PlainMethod
from rclcpb.methods.pnn import PNN
from rclcpb.methods.replay import ER, DERpp
from rclcpb.methods.settings import plain_settings
from rclcpb_core import Learner

__all__ = ["NAMES", "SCENARIOS", "SMALL", "TABLES", "ScenarioEntry", "entry", "make_scenario"]


@dataclass(frozen=True)
class MethodEntry:
    """A method as the command line, tables and figures know it."""

    title: str
    colour: str  #: one of Okabe and Ito's, or a darker one, the same in every chapter
    marker: str  #: a second cue
    learner: type[Method] = Learner
    family: str = ""  #: beyond the paper: "plus", "natural" or "memoryless" settings
    changes: Mapping[str, Any] = field(default_factory=dict)  #: of a scenario's preset
    longer_replay: int = 1  #: times the preset's
    held: int = 1  #: numbers kept a parameter while a task is learned: here, the prior
    logits: bool = False  #: are they kept with each stored image?


_FIXED = {"prune": False, "grow": False}
METHODS: dict[str, MethodEntry] = {
    "rcl-cpb": MethodEntry("RCL-CPB", "#0072B2", "o"),
    "rcl-cpb-A": MethodEntry("RCL-CPB −A", "#E69F00", "s", changes={"grow": False}),
    "vcl": MethodEntry("VCL", "#D55E00", "^", changes=_FIXED),
    "rcl-cpb-plus": MethodEntry("RCL-CPB+", "#56B4E9", "o", family="plus"),
    "vcl-plus": MethodEntry("VCL+", "#8A7A00", "^", family="plus", changes=_FIXED),
    "rcl-cpb-natural": MethodEntry("RCL-CPB natural", "#003F6B", "D", family="natural"),
    "vcl-natural": MethodEntry("VCL natural", "#8C2D04", "^", family="natural", changes=_FIXED),
    "rcl-cpb-memoryless": MethodEntry("RCL-CPB memoryless", "#5E3C99", "X", family="memoryless"),
    "vcl-memoryless": MethodEntry(
        "VCL memoryless", "#B2639E", "1", family="memoryless", changes=_FIXED
    ),
    # a fresh network a task needs more steps to get there
    "coreset-only": MethodEntry(
        "stored images alone", "#009E73", "P", StoredImagesAlone, "plus", _FIXED, 3, held=0
    ),
    "finetune": MethodEntry("fine-tuning", "#999999", "x", Finetune, held=0),
    "joint": MethodEntry("joint training", "#222222", "*", Joint, held=0),
    "er": MethodEntry("ER", "#117733", "v", ER, held=0),
    "der++": MethodEntry("DER++", "#44AA99", "v", DERpp, held=0, logits=True),
    "ewc": MethodEntry("EWC", "#882255", "<", EWC, held=2),
    "ewc-online": MethodEntry("online EWC", "#AA4499", "<", OnlineEWC, held=2),
    "si": MethodEntry("SI", "#CC6677", ">", SI, held=4),
    "lp": MethodEntry("LP", "#661100", ">", LP, held=2),
    "rwalk": MethodEntry("RWalk", "#6699CC", "h", RWalk, held=6),
    "gem": MethodEntry("GEM", "#888888", "d", GEM, held=0),
    "icarl": MethodEntry("iCaRL", "#332288", "p", ICaRL),
    "pnn": MethodEntry("PNN", "#DDCC77", "8", PNN, held=0),
}
# the methods of plain networks, which are not the paper's family
OTHERS = tuple(name for name, how in METHODS.items() if issubclass(how.learner, PlainMethod))
OURS = tuple(name for name in METHODS if name not in OTHERS)
# which differences the tables test, seed by seed
PAIRS = (
    ("rcl-cpb", "vcl"),
    ("rcl-cpb", "rcl-cpb-A"),
    ("rcl-cpb-plus", "vcl-plus"),
    ("rcl-cpb-plus", "coreset-only"),
    ("rcl-cpb-natural", "vcl-natural"),
    ("rcl-cpb-natural", "rcl-cpb-plus"),
    ("rcl-cpb-memoryless", "vcl-memoryless"),
)


def _family(scenario: str, method: str) -> Mapping[str, Any]:
    """What a method's family changes of a scenario's preset."""
    family = METHODS[method].family
    if family in ("", "plus"):
        return entry(scenario).plus if family else {}
    return natural.changes(family, scenario.removesuffix(SMALL))


def preset(scenario: str, method: str = "rcl-cpb") -> Any:
    """The settings of a method on a scenario; the -5k ones train longer on less."""
    if method not in METHODS:
        raise RclCpbError(f"no method {method!r}: choose from {', '.join(METHODS)}.")
    known, how = entry(scenario), METHODS[method]
    if method in OTHERS:
        return plain_settings(scenario, method, known.config)
    config = replace(known.config, **_family(scenario, method))
    if scenario.endswith(SMALL):
        batch = min(64, config.batch_size)
        config = replace(config, epochs=3 * config.epochs, batch_size=batch)
    config = replace(config, **how.changes)
    steps, epochs = config.replay_steps, config.replay_epochs
    times = how.longer_replay
    return replace(config, replay_steps=times * steps, replay_epochs=times * epochs)
