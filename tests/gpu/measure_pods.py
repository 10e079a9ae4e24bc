"""Measure what Kubernetes adds to sharing this machine's GPU: on the bare host, in pods by plugin, in pods by claims.

In interleaved blocks: a repeat in all three ways, and each repeat begins with another one. Only missing cells are
measured, so that several visits to a GPU add up. Needs root, an NVIDIA GPU, and what a test bed on it needs
(tests/cluster/README.md). When all cells are there, it makes the tables and prints what a cell costs in pods.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from snakemake.utils import update_config

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "scripts"), str(REPOSITORY / "tests")]

from cluster.testbed import gpu, lifecycle, programs  # noqa: E402
from cluster.testbed.instance import Gpu  # noqa: E402
from gpu.visit import Part  # noqa: E402

from sharebench.core.capabilities import gpu_python  # noqa: E402
from sharebench.records.tables import read_table  # noqa: E402
from sharebench.study.study import Study  # noqa: E402

HERE = Path(__file__).resolve().parent
NAMESPACE = "sharebench"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
BED = "pods"
# A strategy of the host, and the same by plugin and by claims. The plugin's `mps` caps each tenant at 100/N.
SAME = {
    "exclusive": ("exclusive", "exclusive-dra"),
    "time-slicing": ("time-slicing", "time-slicing-dra"),
    "mps-limited": ("mps", "mps-limited-dra"),
}


@dataclass(frozen=True)
class Way:
    """A way to the GPU: the file of its study, the test bed that it needs, and which part of the study is its own."""

    file: Path
    bed: Gpu | None
    part: dict[str, Any]


WAYS = {
    "host": Way(HERE / "pods-host.yaml", None, {}),
    "plugin": Way(HERE / "pods.yaml", "real", {"strategies": ["exclusive", "time-slicing", "mps"]}),
    "claims": Way(
        HERE / "pods.yaml",
        "real-cdi",
        # The baseline of the study is the plugin's, and so are its seven tenants.
        {"strategies": [by_claims for _, by_claims in SAME.values()], "baseline": "none", "exclude": []},
    ),
}


def study_of(way: Way, *changes: dict[str, Any]) -> Study:
    """The part of the way's study that is its own."""
    merged: dict[str, Any] = {}
    for change in (way.part, *changes):
        update_config(merged, change)
    return Part(way.file, merged).study


def lacks(way: Way, *changes: dict[str, Any]) -> int:
    """How many cells have no record yet."""
    study = study_of(way, *changes)
    return sum(not (Path(study.config["results"]) / cell.raw).exists() for cell in study.cells)


def snakemake(way: Way, environment: dict[str, str], *words: str, changes: Sequence[dict[str, Any]] = ()) -> None:
    """Raises CalledProcessError."""
    settings: dict[str, Any] = {}
    for change in changes:
        update_config(settings, change)
    command = [sys.executable, "-m", "snakemake", *words, "--snakefile", str(REPOSITORY / "Snakefile"), "--cores", "1"]
    command += ["--configfile", str(way.file), "--config", *(f"{key}={value}" for key, value in settings.items())]
    subprocess.run(command, env=environment, check=True)


@contextlib.contextmanager
def bed(kind: Gpu | None) -> Iterator[dict[str, str]]:
    """The environment of a run, on a test bed of that kind where there is one."""
    if kind is None:
        yield dict(os.environ)
        return
    try:
        found = lifecycle.up(BED, gpu=kind)
        gpu.install_into(found)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}}
        kubectl: list[str | Path] = [programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={found.kubeconfig}"]
        lifecycle.run(*kubectl, "create", "-f", "-", text=yaml.safe_dump(body))
        yield os.environ | {"KUBECONFIG": str(found.kubeconfig)}
    finally:
        lifecycle.down(BED)


def measure(ways: Sequence[str], changes: dict[str, Any], until: float) -> bool:
    """Measure the missing cells, block by block; whether all are there. Nothing is begun after `until`."""
    for repeat in range(1, study_of(WAYS[ways[0]], changes).config["repeats"] + 1):
        first = (repeat - 1) % len(ways)
        for name in (*ways[first:], *ways[:first]):
            way, block = WAYS[name], {"repeats": repeat}
            if not (count := lacks(way, changes, block)):
                continue
            if time.monotonic() > until:
                return False
            print(f"== {time.strftime('%H:%M:%S')} repeat {repeat}, {name}: {count} cells", flush=True)
            with bed(way.bed) as environment:
                snakemake(way, environment, "--until", "run_cell", changes=[way.part, changes, block])
    return True


def overhead(host: Path, pods: Path) -> Iterator[str]:
    """A Markdown table: seconds of a cell beyond its window and warm-up, on the host and in pods."""
    bare, ours = (read_table(folder / "tables" / "startup.csv") for folder in (host, pods))
    yield "| workload | strategy | tenants | host, s | plugin, s | claims, s | plugin / host | claims / host |"
    yield f"|{' --- |' * 8}"
    known = {(row["strategy"], row["workload"], row["replicas"]): row["overhead_seconds"] for _, row in ours.iterrows()}
    for _, row in bare.iterrows():
        if row["strategy"] not in SAME:
            continue
        there = [known.get((name, row["workload"], row["replicas"])) for name in SAME[row["strategy"]]]
        texts = ["" if each is None else f"{each:.1f}" for each in there]
        texts += ["" if each is None else f"{each / row['overhead_seconds']:.2f}" for each in there]
        first = f"`{row['workload']}` | {row['strategy']} | {row['replicas']} | {row['overhead_seconds']:.1f}"
        yield f"| {first} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ways", default=",".join(WAYS), help="of them (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no part of a block after this time")
    parser.add_argument("--python", default=str(gpu_python("auto") or sys.executable), help="that has torch")
    parser.add_argument("--config", type=yaml.safe_load, default={}, help="YAML, as {repeats: 1}: of both studies")
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    ways = options.ways.split(",")
    changes: dict[str, Any] = {}
    update_config(changes, {"kubernetes": {"python": options.python}, "nvidia": {"python": options.python}})
    update_config(changes, options.config)
    if not measure(ways, changes, time.monotonic() + 60 * options.minutes):
        sys.exit("not all cells are there yet: run it again")
    made = {}
    for name in dict.fromkeys("host" if way == "host" else "plugin" for way in ways):
        whole = study_of(WAYS[name], changes)
        made[name] = Path(whole.config["results"])
        snakemake(WAYS[name], dict(os.environ), changes=[changes])
    if len(made) == 2:
        print("\n".join(overhead(made["host"], made["plugin"])))


if __name__ == "__main__":
    main()
