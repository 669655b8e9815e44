"""Golden runs: what small configurations end in, bit for bit.

    python tests/golden.py            print the digests of today's code on this machine
    python tests/golden.py --write    make them the golden ones of this maker's processors

The kernels are fixed, so that every machine with a processor of one maker ends in the same bits.
Between makers they differ even so: a square root in single precision begins with the
processor's own estimate, and the estimates differ. A digest that changes says that the numbers
of recorded runs would change, too: that is a new version of the method, and nothing is written
before `VERSION` in the core is another.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

INTEL = "GenuineIntel"


def maker() -> str:
    """Who made this machine's processor, as the processor says it."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.split()[-1] for line in lines if line.startswith("vendor_id")), "unknown")


KERNELS = {  # one instruction set for every machine; read when torch is loaded
    "ATEN_CPU_CAPABILITY": "avx2",
    # MKL fixes its AVX2 kernels on Intel's processors alone
    "MKL_CBWR": "AVX2,STRICT" if maker() == INTEL else "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
}
HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden.json"
sys.path[:0] = [str(HERE.parent), str(HERE)]

COLOUR = {"distort": "crop-flip", "augment": "crop-flip", "decay": True, "rho_init": -8.0}
PLUS = {"sampling": "local", "new_into_old": "zero", "coreset_choice": "medoids"}
FIXED = {"prune": False, "grow": False}
NATURAL = {"optimiser": "natural", "sampling": "local", "lr_mu": 0.02, "lr_rho": 0.02}
NATURAL |= {"replay": False}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # method, scenario, config
    "weight, one head": ("rcl-cpb", {"heads": "single"}, {"replay_kl": 0.1}),
    "weight, heads": ("rcl-cpb", {"heads": "multi"}, {"gamma": (0.3,), "replay_kl": 0.1}),
    "local, one head, elastic": (
        "rcl-cpb",
        {"heads": "single"},
        {"sampling": "local", "distort": "elastic", "gamma": (0.2, 0.4)},
    ),
    "local, heads, mixing": (
        "rcl-cpb-plus",
        {"heads": "multi"},
        PLUS | {"replay_mix": 8, "replay_newest": False, "augment": "shift"},
    ),
    "one head, mixing": ("rcl-cpb-plus", {"heads": "single"}, PLUS | {"replay_mix": 8}),
    "trunk, heads": ("rcl-cpb", {"heads": "multi", "trunk": True}, COLOUR | {"replay_epochs": 4}),
    "trunk, one head, mirrored": (
        "rcl-cpb",
        {"heads": "single", "trunk": True},
        COLOUR | {"distance_classes": "seen", "test_mirror": True, "coreset_choice": "balanced"},
    ),
    "no growth": ("rcl-cpb-A", {"heads": "single"}, {"grow": False}),
    "vcl": ("vcl", {"heads": "multi"}, FIXED),
    "control, one head": ("coreset-only", {"heads": "single"}, FIXED | {"replay_kl": 0.1}),
    "control, heads": ("coreset-only", {"heads": "multi"}, FIXED | {"replay_kl": 0.1}),
    "natural, one head": ("rcl-cpb", {"heads": "single"}, NATURAL),
    "natural, answers": (
        "rcl-cpb",
        {"heads": "single"},
        NATURAL | {"sampling": "weight", "stored_targets": "answers", "replay_mix": 8},
    ),
    "memoryless, heads": (
        "rcl-cpb",
        {"heads": "multi"},
        NATURAL | {"new_into_old": "none", "coreset": 0, "gamma": (0.3,), "prior_strength": 3.0},
    ),
}


def digest(run: tuple[Any, Any]) -> dict[str, Any]:
    """Accuracies and sizes to read, and a checksum over these, the NLLs and all weights."""
    record, net = run
    total = hashlib.sha256(json.dumps([record.accuracy, record.nll, record.hidden]).encode())
    for layer in [*net.trunk, *net.hidden, *net.heads]:
        for vector in (layer.mu, layer.rho, layer.prior_mu, layer.prior_rho):
            total.update(vector.detach().numpy().tobytes())
    last = [round(100 * a, 2) for a in record.accuracy[-1]]
    return {"accuracy": last, "hidden": record.hidden[-1], "sha256": total.hexdigest()}


def learned(scenario: Any, method: str, config: Any) -> tuple[Any, Any]:
    """A finished run's record and network."""
    from rclcpb import runner

    run = runner.Run(runner.make(method, scenario, config))
    return run.finish(method), run.method.net


def arithmetic() -> str:
    """A checksum over the results of single operations: machines that agree here are alike."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, image, grid = torch.rand(1000) + 0.1, torch.randn(1, 1, 30, 30), torch.rand(1, 30, 30, 2)
    results = [x.sqrt(), x.exp(), x.log(), image[0, 0] @ image[0, 0]]
    results += [
        F.conv2d(image, image[..., :5, :5]),
        F.grid_sample(image, grid, align_corners=False),
    ]
    return hashlib.sha256(b"".join(r.numpy().tobytes() for r in results)).hexdigest()


def digests() -> dict[str, Any]:
    import tiny
    import torch

    from rclcpb import presets
    from rclcpb_core import VERSION

    torch.set_num_threads(1)
    found: dict[str, Any] = {"version": VERSION, "arithmetic": arithmetic()}
    for name, (method, kind, changes) in RUNS.items():
        found[name] = digest(learned(tiny.scenario(**kind), method, tiny.config(**changes)))
    name = "ta-smnist-5k"
    found[name] = digest(learned(presets.make_scenario(name), "rcl-cpb", presets.preset(name)))
    return found


def refuse_moved(before: dict[str, Any], found: dict[str, Any]) -> None:
    """Other digits on a machine that computes alike are another version of the method."""
    moved = [name for name, run in before.items() if found.get(name, run) != run]
    if moved and not {"version", "arithmetic"} & set(moved):
        names = ", ".join(moved)
        raise SystemExit(f"other digits in {names}: first raise VERSION in rclcpb_core.py")


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cli.add_argument("--write", action="store_true")
    write = cli.parse_args().write
    found = digests()
    if write:
        known = json.loads(GOLDEN.read_text())
        refuse_moved(known.get(maker(), {}), found)
        GOLDEN.write_text(json.dumps(known | {maker(): found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in KERNELS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KERNELS)
    main()
