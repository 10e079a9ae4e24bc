"""Does the pipeline measure what a bare loop measures? Interleaved pairs of the two, on this host's GPU.

Each pair is one run of bare_loop.py and one cell of the pipeline, `sharebench.measure.cell.cell.run_cell` as a study
calls it, under the same strategy and with the same number of tenants. Prints the median ratio of the means of an
iteration, ours to bare, and the spread of the bare runs; with --csv, each pair is a line of a
table as soon as it is measured. Exit code 1 if a median is further from 1 than the limit. The frameworks are those of
.venv-gpu, or else of the interpreter that runs this.
"""

import argparse
import contextlib
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "scripts"))

from sharebench.core import run_names  # noqa: E402
from sharebench.measure.cell.cell import CellRun  # noqa: E402
from sharebench.measure.nodes.contract import NodeError, Settings  # noqa: E402
from sharebench.measure.nodes.host.mps import foreign_daemon  # noqa: E402
from sharebench.measure.nodes.host.nvml import Gpu  # noqa: E402
from sharebench.measure.nodes.kinds import open_node  # noqa: E402
from sharebench.measure.nodes.node import Node  # noqa: E402
from sharebench.measure.run import ownership  # noqa: E402
from sharebench.model import run_record  # noqa: E402
from sharebench.model.config import load  # noqa: E402
from sharebench.model.gpu_python import gpu_python  # noqa: E402
from sharebench.model.study_config import to_json  # noqa: E402
from sharebench.read.gates.gates import evaluate  # noqa: E402
from sharebench.study.cells import Cell  # noqa: E402
from sharebench.study.study import Study  # noqa: E402

# Of the tenants and of the bare loop.
PYTHON = str(gpu_python("auto") or sys.executable)
LIMIT_RATIO = 0.02
STRATEGIES = ("time-slicing", "mps")
COLUMNS = ("strategy", "workload", "replicas", "pair", "bare_mean_ms", "ours_mean_ms")
CONTROL = "nvidia-cuda-mps-control"
QUIT_SECONDS = 15.0


def study(arguments: argparse.Namespace) -> Study:
    """The study whose cells are compared: the project's own catalogues, and windows of the wanted length."""
    merged: dict[str, Any] = {}
    for name in ("strategies", "workloads"):
        merged |= yaml.safe_load((REPOSITORY / f"config/{name}.yaml").read_text(encoding="utf-8"))
    name = catalogue_name(arguments)
    merged["workload_catalogue"][name]["min_window_seconds"] = arguments.seconds
    wanted = {
        "node": "nvidia",
        "nvidia": {"gpu": arguments.gpu, "python": PYTHON},
        "strategies": arguments.strategies,
        "replicas": arguments.replicas,
        "workloads": [name],
        "repeats": arguments.pairs,
        "window_seconds": arguments.seconds,
        "warmup": {"max_seconds": 5},
        "baseline": "none",
    }
    return Study(load.load(merged | wanted))


def catalogue_name(arguments: argparse.Namespace) -> str:
    """The catalogue's name of the workload."""
    return f"{arguments.workload}-graph" if arguments.graph else str(arguments.workload)


def ours(node: Node, of: Study, cell: Cell, results: Path) -> float:
    """Mean of an iteration over all tenants of one cell, µs; reports failed gates."""
    settings: Settings = {"timeouts": of.config["timeouts"], "cell_folder": cell.folder}
    try:
        record, _ = CellRun(node, of.strategies[cell.strategy], of.spec(cell), of.block(cell), settings, {}).measure()
    finally:
        # The bare loop has the GPU for itself, and its own MPS daemon.
        node.restore()
    if record["status"] != "ok":
        sys.exit(f"{cell}: {record['status']}: {record['reason']}")
    (results / f"{cell.folder.replace('/', '-')}.json").write_text(json.dumps(record))
    # Without a calibration there is nothing to hold the output against.
    failed = [gate["name"] for gate in evaluate(record) if not gate["passed"] and gate["name"] != "output_digest"]
    if failed:
        print(f"  {cell}: failed gates: {', '.join(failed)}", flush=True)
    tenants = record["tenants"]
    return 1e6 * sum(each["sum_seconds"] for each in tenants) / sum(each["count"] for each in tenants)


@contextlib.contextmanager
def daemon(strategy: str, gpu: str) -> Iterator[dict[str, str]]:
    """The environment of the bare loop: that of this process, and under MPS a daemon of its own."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
    # One thread per process for the CPU's part, as the pipeline's tenants have it.
    plain |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="bare", ignore_cleanup_errors=True) as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        if strategy != "mps":
            # No daemon is there.
            yield plain | own
            return
        for path in own.values():
            Path(path).mkdir()
        subprocess.run([CONTROL, "-d"], env=plain | own, check=True, timeout=30)
        try:
            # The daemon has renumbered what it was shown; its clients see device 0.
            yield plain | own | {"CUDA_VISIBLE_DEVICES": "0"}
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, env=plain | own, check=True, timeout=30)
            # The pipeline refuses to work next to it.
            deadline = time.monotonic() + QUIT_SECONDS
            while foreign_daemon(Path(folder).with_name("none"), {gpu}) and time.monotonic() < deadline:
                time.sleep(0.05)


def bare(arguments: argparse.Namespace, strategy: str, processes: int) -> float:
    """Mean of an iteration over all processes of the bare loop, µs."""
    command = [PYTHON, str(HERE / "bare_loop.py"), "--workload", arguments.workload]
    command += ["--processes", str(processes), "--seconds", str(arguments.seconds)]
    command += ["--graph"] if arguments.graph else []
    with daemon(strategy, arguments.gpu) as environment:
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return float(json.loads(answer.stdout.splitlines()[-1])["mean"])


def add_row(table: Path, row: tuple[object, ...]) -> None:
    """Add one pair to a table, which is begun with its header where it is not there yet."""
    begun = table.exists()
    with table.open("a", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        if not begun:
            lines.writerow(COLUMNS)
        lines.writerow(row)


def compared(name: str, pairs: list[tuple[float, float]]) -> tuple[str, bool]:
    """A line about pairs (bare, ours) of means in µs, and whether the two agree."""
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    theirs = [pair[0] for pair in pairs]
    middle = statistics.median(theirs)
    agree = abs(ratio - 1) <= LIMIT_RATIO
    line = (
        f"{name}: median ratio ours/bare {ratio:.4f} ({', '.join(f'{b / a:.4f}' for a, b in pairs)}); bare median "
        f"{middle:.2f} µs, from {min(theirs) / middle - 1:+.2%} to {max(theirs) / middle - 1:+.2%}; "
        + ("within" if agree else "NOT WITHIN")
        + f" {LIMIT_RATIO:.0%}"
    )
    return line, agree


def parsed() -> argparse.Namespace:
    """The command line."""
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4, help="length of a window")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--replicas", type=numbers, default=[1, 4, 7], help="numbers of tenants, such as 1,4,7")
    parser.add_argument("--strategies", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--workload", choices=("matmul-256", "resnet50", "yolos"), default="matmul-256")
    parser.add_argument("--graph", action="store_true", help="replay one captured CUDA graph")
    parser.add_argument("--csv", type=Path, help="table to which each pair is added, means in ms")
    parser.add_argument("--gpu", default="0", help="index or UUID")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    # By its UUID, so that an MPS daemon for it is distinguished from those of other GPUs.
    arguments.gpu = Gpu(arguments.gpu).uuid
    if wrong := set(arguments.strategies) - set(STRATEGIES):
        sys.exit(f"--strategies {','.join(sorted(wrong))}: the bare loop has only {' and '.join(STRATEGIES)}")
    of = study(arguments)
    results = Path(tempfile.mkdtemp(prefix="compare-bare-loop-"))
    node = open_node("nvidia", of.config["nvidia"], run_record.state_folder(results) / "node")
    claim = ownership.claim(results, {"config": to_json(of.config)}, *filter(None, [node.lock_path]))
    os.environ[run_names.RUN_ID_VARIABLE] = claim.run_id
    all_agree = True
    try:
        node.sweep()
        for strategy in arguments.strategies:
            for replicas in arguments.replicas:
                pairs = []
                for repeat in range(1, arguments.pairs + 1):
                    theirs = bare(arguments, strategy, replicas)
                    cell = Cell(strategy, catalogue_name(arguments), replicas, repeat)
                    mine = ours(node, of, cell, results)
                    pairs.append((theirs, mine))
                    if arguments.csv:
                        means_ms = (f"{mean / 1e3:.6g}" for mean in pairs[-1])
                        add_row(arguments.csv, (strategy, cell.workload, replicas, repeat, *means_ms))
                line, agree = compared(f"{catalogue_name(arguments)}, {strategy} × {replicas}", pairs)
                print(line, flush=True)
                all_agree &= agree
    finally:
        node.restore()
        claim.release()
    print(f"records: {results}")
    return 0 if all_agree else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (load.ConfigError, NodeError, ownership.OwnershipError, subprocess.SubprocessError) as error:
        sys.exit(f"not compared: {error}")
