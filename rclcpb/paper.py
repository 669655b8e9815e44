"""The paper's Tables 1 to 4 and its hyperparameters, every row, with the source it names."""

from __future__ import annotations

from typing import NamedTuple


class PaperRow(NamedTuple):
    """A number the paper prints; `source` is "own", or the paper that it quotes."""

    method: str
    accuracy: float
    deviation: float | None
    hidden: tuple[int, int] | None  #: final sizes; None is a network of another kind
    source: str = "own"
    first: tuple[int, int] | None = None  #: sizes it starts with, where others than the final


_VCL, _AGEM, _RWALK, _GEM = "Nguyen 2018", "Chaudhry 2019", "Chaudhry 2018", "Lopez-Paz 2017"
_ACL = "Ebrahimi 2020"

PMNIST = (
    PaperRow("rcl-cpb, gamma 0.3", 94.2, 0.23, (126, 139), first=(32, 32)),
    PaperRow("rcl-cpb, gamma 0.12", 92.7, 0.14, (58, 93), first=(32, 32)),
    PaperRow("vcl", 93.0, None, (100, 100), _VCL),
    PaperRow("ewc", 84.0, None, (100, 100), _VCL),
    PaperRow("si", 86.0, None, (100, 100), _VCL),
    PaperRow("lp", 82.0, None, (256, 256), _VCL),
    PaperRow("gem", 93.1, None, (256, 256), _AGEM),
    PaperRow("rwalk", 91.6, None, (256, 256), _AGEM),
    PaperRow("pnn", 94.6, None, (2560, 2560), _AGEM, (256, 256)),
)
MH_SMNIST = (
    PaperRow("rcl-cpb", 99.3, 0.13, (116, 112), first=(64, 64)),
    PaperRow("vcl", 98.4, None, (256, 256), _VCL),
    PaperRow("ewc", 63.1, None, (256, 256), _VCL),
    PaperRow("si", 98.9, None, (256, 256), _VCL),
    PaperRow("lp", 61.2, None, (256, 256), _VCL),
    PaperRow("gem", 94.3, None, (256, 256), _ACL),
    PaperRow("rwalk", 99.3, None, (256, 256), _RWALK),
    PaperRow("icarl", 89.3, None, (256, 256), _ACL),
    PaperRow("pnn", 99.8, 0.05, (1280, 1280), first=(256, 256)),
)
TA_SMNIST = (
    PaperRow("rcl-cpb", 83.8, 0.38, (160, 128), first=(128, 128)),
    PaperRow("vcl", 60.6, 4.41, (160, 128)),
    PaperRow("ewc", 55.8, None, (256, 256), _RWALK),
    PaperRow("rwalk", 82.5, None, (256, 256), _RWALK),
    PaperRow("icarl", 55.8, None, (256, 256), _RWALK),
)
MH_CIFAR100 = (
    PaperRow("rcl-cpb", 72.4, 0.40, (733, 789), first=(128, 128)),
    PaperRow("vcl", 67.6, 0.74, (733, 789)),
    PaperRow("ewc", 42.4, None, None, _AGEM),
    PaperRow("si", 47.1, None, None, _AGEM),  # the table calls it PI
    PaperRow("gem", 65.4, None, None, _GEM),
    PaperRow("rwalk", 70.1, None, None, _RWALK),
    PaperRow("icarl", 50.8, None, None, _GEM),
    PaperRow("pnn", 59.2, None, None, _AGEM),
)
TA_CIFAR100 = (
    PaperRow("rcl-cpb", 23.0, 0.38, (463, 292), first=(256, 256)),
    PaperRow("vcl", 21.3, 0.79, (463, 292)),
)
SEQUENCE = (
    PaperRow("rcl-cpb", 81.5, 0.13, (636, 758), first=(256, 256)),
    PaperRow("vcl", 75.7, 0.90, (636, 758)),
)

# beta and gamma (the paper prints e to a power; its text says 1e-9 to 1e-2), images stored a task
HYPERPARAMETERS: dict[str, tuple[str, str, int]] = {
    "pmnist": ("1e-5", "0.12 and 0.3", 200),
    "mh-smnist": ("1e-5", "0.2", 40),
    "ta-smnist": ("1e-2.5", "0.1", 20),
    "mh-cifar100": ("1e-4", "0.15", 256),
    "ta-cifar100": ("1e-2", "0.15", 256),
    "mnist-svhn-cifar10": ("1e-9", "0.08", 512),
}
# how the papers that are quoted had their numbers, by scenario
_ONE_PASS = "each image seen once"
PROTOCOLS: dict[tuple[str, str], str] = {
    ("pmnist", _VCL): "10 tasks, one head, [100, 100]; VCL with 200 stored images a task",
    ("pmnist", _AGEM): f"20 tasks, {_ONE_PASS}, [256, 256]",
    ("mh-smnist", _VCL): "a head a task, [256, 256]; VCL with 40 stored images a task",
    ("mh-smnist", _ACL): "a head a task",
    ("mh-smnist", _RWALK): "a head a task, [256, 256]",
    ("ta-smnist", _RWALK): "one head, [256, 256]; RWalk and iCaRL store images, EWC none",
    ("mh-cifar100", _AGEM): f"20 tasks of 5 classes, {_ONE_PASS}, a reduced ResNet-18",
    ("mh-cifar100", _GEM): f"20 tasks of 5 classes, {_ONE_PASS}, a reduced ResNet-18",
    ("mh-cifar100", _RWALK): "10 tasks of 10 classes, a small convolutional network",
}
# what the named table says, where the paper prints another number
SOURCES_SAY = {("pmnist", "gem"): 89.5, ("pmnist", "rwalk"): 85.7, ("pmnist", "pnn"): 93.5}
