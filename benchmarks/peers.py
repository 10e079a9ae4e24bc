"""What other clients measure on the same server of a language model: `python benchmarks/peers.py`, six minutes.

The server is that of benchmarks/client.py, with delays as of a loaded server of a real model. It is asked by the client
of `kind: http`, by AIPerf (`aiperf`) and by vLLM's benchmark (`vllm bench serve`), where these are on the PATH. What
each reports is compared with what the server did in that run, so that runs may differ. Exit code 1 when a peer is
further from ours than LIMIT_PERCENT. Where that is allowed (as root), all of them come before the machine's other work.
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

from benchmarks.client import Numbers, Planted, measured, reported, serving, true

from tenant.load import Load

ROOT = Path(__file__).resolve().parents[1]
CONCURRENCIES = (1, 16, 64)
SECONDS = 20.0
LIMIT_PERCENT = 2.0
PLANTED = Planted(first_seconds=0.3, gap_seconds=0.02, tokens=32)
PROMPT_TOKENS = 32
PRIORITY = 5


class Run(NamedTuple):
    """What one client said, and what the server did meanwhile; `late_ms` is how late it was with an answer, mean."""

    said: Numbers
    did: Numbers
    late_ms: float

    def errors(self) -> Numbers:
        """By number, as a ratio."""
        return {name: self.said[name] / self.did[name] - 1 for name in self.did}


def ours(concurrency: int, folder: Path) -> Run:
    found = measured(Load(concurrency=concurrency), PLANTED, SECONDS)
    return Run(reported(found.record), true(found.sent), mean_ms(found.late_seconds))


def aiperf(concurrency: int, folder: Path) -> Run:
    options = ["--model", "any", "--tokenizer", str(folder), "--ui", "none", "--artifact-dir", "out", "--streaming"]
    options += ["--endpoint-type", "completions", "--use-server-token-count", "--isl", str(PROMPT_TOKENS)]
    options += ["--osl", str(PLANTED.tokens), "--concurrency", str(concurrency)]
    options += ["--request-count", str(requests(concurrency)), "--warmup-request-count", str(concurrency)]
    found, sent = asked(concurrency, folder, ["aiperf", "profile", *options, "--url"], "out/profile_export_aiperf.json")
    # What it calls inter-token latency is a mean per request: TPOT.
    names = {"ttft": "time_to_first_token", "itl": "inter_chunk_latency", "tpot": "inter_token_latency"}
    names |= {"latency": "request_latency"}
    return Run({name: found[theirs]["avg"] for name, theirs in names.items()}, *sent)


def vllm(concurrency: int, folder: Path) -> Run:
    options = ["--backend", "openai", "--endpoint", "/v1/completions", "--model", "any", "--tokenizer", str(folder)]
    options += ["--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)]
    options += ["--random-output-len", str(PLANTED.tokens), "--num-warmups", str(concurrency)]
    options += ["--num-prompts", str(requests(concurrency)), "--max-concurrency", str(concurrency)]
    options += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--result-filename", "vllm.json"]
    found, sent = asked(concurrency, folder, ["vllm", "bench", "serve", *options, "--base-url"], "vllm.json")
    names = {"ttft": "mean_ttft_ms", "itl": "mean_itl_ms", "tpot": "mean_tpot_ms", "latency": "mean_e2el_ms"}
    return Run({name: found[theirs] for name, theirs in names.items()}, *sent)


def mean_ms(seconds: Sequence[float]) -> float:
    return 1000 * sum(seconds) / len(seconds)


def requests(concurrency: int) -> int:
    """As many as are answered in the time of a window."""
    first, gap, tokens = PLANTED
    return round(SECONDS / (first + (tokens - 1) * gap)) * concurrency


def asked(concurrency: int, folder: Path, command: list[str], result: str) -> tuple[Any, tuple[Numbers, float]]:
    """What a peer wrote into this file after it had asked a server, and of the server what `Run` has.

    The command ends where the server's root belongs. Raises SystemExit with what it printed when it fails.
    """
    # AIPerf takes a tokenizer's folder for a name of the hub where it believes to be offline.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with serving(PLANTED) as (url, ended):
        done = subprocess.run([*command, url], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        sent = ended()
    # Those before were warm-up.
    counted = sorted(sent.times_ns)[-requests(concurrency) :]
    return json.loads((folder / result).read_text()), (true(counted), mean_ms(sent.late_seconds))


CLIENTS: dict[str, Callable[[int, Path], Run]] = {"ours": ours, "aiperf": aiperf, "vllm": vllm}


@contextmanager
def first_in_line() -> Iterator[None]:
    """This process and those that it starts come before others, where that is allowed."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def run(client: str, concurrency: int) -> Run:
    """By one client, in a folder of its own that has a tokenizer."""
    with tempfile.TemporaryDirectory() as folder, first_in_line():
        subprocess.run([sys.executable, ROOT / "examples" / "make_model.py", "0.6b", folder], check=True)
        return CLIENTS[client](concurrency, Path(folder))


def apart(peer: Run, own: Run) -> float:
    """How far its numbers are from ours, each next to what its server did; of all numbers the largest ratio."""
    own_errors = own.errors()
    return max(abs((1 + error) / (1 + own_errors[name]) - 1) for name, error in peer.errors().items())


def main() -> None:
    there = ["ours", *(name for name in CLIENTS if shutil.which(name))]
    print(f"not on the PATH: {', '.join(sorted(CLIENTS.keys() - there)) or 'none'}")
    print(f"| in flight | ms | {' | '.join(there)} |\n|---|---|{'---|' * len(there)}")
    worst = 0.0
    for concurrency in CONCURRENCIES:
        runs = [run(name, concurrency) for name in there]
        for name in runs[0].did:
            cells = (f"{each.said[name]:.2f} of {each.did[name]:.2f}, {each.errors()[name]:+.2%}" for each in runs)
            print(f"| {concurrency} | {name} | {' | '.join(cells)} |", flush=True)
        print(f"| {concurrency} | late | {' | '.join(f'{each.late_ms:.2f}' for each in runs)} |", flush=True)
        worst = max([worst, *(100 * apart(peer, runs[0]) for peer in runs[1:])])
    print(f"furthest from ours: {worst:.1f} %")
    sys.exit(worst > LIMIT_PERCENT)


if __name__ == "__main__":
    main()
