"""Comparison of clients on the same server of a language model: `python benchmarks/peers.py`, six minutes.

The server is that of benchmarks/client.py, with the delays of a loaded server of a real model. The clients are that of
`kind: http`, AIPerf (`aiperf`) and vLLM's benchmark (`vllm bench serve`), if these are on the PATH. Each report is
compared with the server's log of that run, so that runs may differ. Exit code 1 if a peer differs from ours by more
than LIMIT_PERCENT. If permitted (as root), all run with priority over the machine's other work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.client import Means, PlantedDelays, actual_means, measure, reported_means, serving
from examples.make_model import write_files

from tenant.load import Load

ROOT = Path(__file__).resolve().parents[1]
CONCURRENCIES = (1, 16, 64)
SECONDS = 20.0
LIMIT_PERCENT = 2.0
PLANTED = PlantedDelays(first_seconds=0.3, gap_seconds=0.02, tokens=32)
PROMPT_TOKENS = 32
PRIORITY = 5


class Run(NamedTuple):
    """The means of a client's report and of the server's log, and the server's mean lateness with an answer."""

    reported: Means
    actual: Means
    late_ms: float

    def errors(self) -> Means:
        """Relative error of each reported mean."""
        return {name: self.reported[name] / self.actual[name] - 1 for name in self.actual}


def ours(concurrency: int, folder: Path) -> Run:
    window = measure(Load(concurrency=concurrency), PLANTED, SECONDS)
    return Run(reported_means(window.record), actual_means(window.sent), mean_ms(window.late_seconds))


def aiperf(concurrency: int, folder: Path) -> Run:
    options = ["--model", "any", "--tokenizer", str(folder), "--ui", "none", "--artifact-dir", "out", "--streaming"]
    options += ["--endpoint-type", "completions", "--use-server-token-count", "--isl", str(PROMPT_TOKENS)]
    options += ["--osl", str(PLANTED.tokens), "--concurrency", str(concurrency)]
    options += ["--request-count", str(request_count(concurrency)), "--warmup-request-count", str(concurrency)]
    # The server has no metrics; on a busy machine the process that would read them misses a heartbeat, and all fails.
    options += ["--no-server-metrics", "--no-gpu-telemetry"]
    command = ["aiperf", "profile", *options, "--url"]
    report, actual = run_peer(concurrency, folder, command, "out/profile_export_aiperf.json")
    # AIPerf's inter-token latency is a mean per request, which is TPOT.
    names = {"ttft": "time_to_first_token", "itl": "inter_chunk_latency", "tpot": "inter_token_latency"}
    names |= {"latency": "request_latency"}
    return Run({name: report[peer_name]["avg"] for name, peer_name in names.items()}, *actual)


def vllm(concurrency: int, folder: Path) -> Run:
    options = ["--backend", "openai", "--endpoint", "/v1/completions", "--model", "any", "--tokenizer", str(folder)]
    options += ["--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)]
    options += ["--random-output-len", str(PLANTED.tokens), "--num-warmups", str(concurrency)]
    options += ["--num-prompts", str(request_count(concurrency)), "--max-concurrency", str(concurrency)]
    options += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--result-filename", "vllm.json"]
    report, actual = run_peer(concurrency, folder, ["vllm", "bench", "serve", *options, "--base-url"], "vllm.json")
    names = {"ttft": "mean_ttft_ms", "itl": "mean_itl_ms", "tpot": "mean_tpot_ms", "latency": "mean_e2el_ms"}
    return Run({name: report[peer_name] for name, peer_name in names.items()}, *actual)


def mean_ms(seconds: Sequence[float]) -> float:
    return 1000 * sum(seconds) / len(seconds)


def request_count(concurrency: int) -> int:
    """Number of requests that are answered in the time of a window."""
    first, gap, tokens = PLANTED
    return round(SECONDS / (first + (tokens - 1) * gap)) * concurrency


def run_peer(concurrency: int, folder: Path, command: list[str], result: str) -> tuple[Any, tuple[Means, float]]:
    """Run a peer on a new server; returns the content of its result file, and `actual` and `late_ms` of `Run`.

    The server's URL is appended to the command. Raises SystemExit with the command's output if it fails.
    """
    # In offline mode, AIPerf takes the folder of a tokenizer for a name on the hub.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with serving(PLANTED) as (url, end):
        process = subprocess.run([*command, url], cwd=folder, env=environment, capture_output=True, text=True)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{process.stdout[-3000:]}\n{process.stderr[-3000:]}")
        log = end()
    # The earlier requests were warm-up.
    counted = sorted(log.times_ns)[-request_count(concurrency) :]
    return json.loads((folder / result).read_text()), (actual_means(counted), mean_ms(log.late_seconds))


CLIENTS: dict[str, Callable[[int, Path], Run]] = {"ours": ours, "aiperf": aiperf, "vllm": vllm}


@contextmanager
def real_time_priority() -> Iterator[None]:
    """Give this process and its children priority over others, if permitted."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def run(client: str, concurrency: int) -> Run:
    """Run one client in a folder of its own that has a tokenizer."""
    with tempfile.TemporaryDirectory() as folder, real_time_priority():
        write_files("0.6b", Path(folder))
        return CLIENTS[client](concurrency, Path(folder))


def difference(peer: Run, own: Run) -> float:
    """Largest relative difference of a peer's means from ours, each relative to its own server's log."""
    own_errors = own.errors()
    return max(abs((1 + error) / (1 + own_errors[name]) - 1) for name, error in peer.errors().items())


def main() -> None:
    clients = ["ours", *(name for name in CLIENTS if shutil.which(name))]
    print(f"not on the PATH: {', '.join(sorted(CLIENTS.keys() - clients)) or 'none'}")
    print(f"| in flight | ms | {' | '.join(clients)} |\n|---|---|{'---|' * len(clients)}")
    worst = 0.0
    for concurrency in CONCURRENCIES:
        runs = [run(name, concurrency) for name in clients]
        for name in runs[0].actual:
            cells = (
                f"{each.reported[name]:.2f} of {each.actual[name]:.2f}, {each.errors()[name]:+.2%}" for each in runs
            )
            print(f"| {concurrency} | {name} | {' | '.join(cells)} |", flush=True)
        print(f"| {concurrency} | late | {' | '.join(f'{each.late_ms:.2f}' for each in runs)} |", flush=True)
        worst = max([worst, *(100 * difference(peer, runs[0]) for peer in runs[1:])])
    print(f"furthest from ours: {worst:.1f} %")
    sys.exit(worst > LIMIT_PERCENT)


if __name__ == "__main__":
    main()
