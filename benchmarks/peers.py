"""What other clients measure on the same server of a language model: `python benchmarks/peers.py`, five minutes.

The server is examples/chat_server.py with known delays. It is asked through this pipeline on the CPU stand-in, by
AIPerf (`aiperf`) and by vLLM's benchmark (`vllm bench serve`), where these are on the PATH. Exit code 1 when one of
their numbers is further from ours than LIMIT_PERCENT.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from sharebench.nodes.host.programs.tenants import free_port

ROOT = Path(__file__).resolve().parents[1]
CONCURRENCIES = (1, 16, 64)
SECONDS = 20
LIMIT_PERCENT = 2.0
# Of the server, and of each request.
FIRST_MS, GAP_MS, INPUT, OUTPUT = 60.0, 20.0, 32, 16
LATENCY_MS = FIRST_MS + (OUTPUT - 1) * GAP_MS
SERVER = [str(ROOT / "examples" / "chat_server.py")]
DELAYS = [str(FIRST_MS), str(GAP_MS)]

Numbers = dict[str, float]
"""`ttft`, `itl`, `tpot`, `latency`: means in ms; `rate`: requests per second."""


def planted(concurrency: int) -> Numbers:
    rate = concurrency / LATENCY_MS * 1000
    return {"ttft": FIRST_MS, "itl": GAP_MS, "tpot": GAP_MS, "latency": LATENCY_MS, "rate": rate}


def ours(concurrency: int, folder: Path) -> Numbers:
    """Through the pipeline: one tenant on the stand-in."""
    body = {"model": "any", "max_tokens": OUTPUT, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    workload = {
        "kind": "http",
        "command": ["{python}", *SERVER, "{port}", *DELAYS],
        "ready": {"path": "/health"},
        "request": {
            "method": "POST",
            "path": "/v1/completions",
            "body": json.dumps(body)[:-1] + ', "prompt": {prompt_ids}}',
            "tokens": {"prompt": INPUT},
        },
        "load": {"concurrency": concurrency},
        "stream": True,
    }
    study = {
        **{
            "node": "cpu",
            "results": "results",
            "strategies": ["exclusive"],
            "replicas": [1],
            "repeats": 1,
            "null_cells": False,
        },
        **{"workloads": ["peers"], "window_seconds": SECONDS, "workload_catalogue": {"peers": workload}},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    command = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    run(folder, *command, "--profile", str(ROOT / "profiles" / "default"), "--configfile", "study.yaml")
    (path,) = folder.glob("results/cells/**/raw.json")
    record = json.loads(path.read_text())
    (tenant,) = record["tenants"]
    itl, asked = tenant["stages"]["itl"], tenant["requests"]
    found = {name: 1000 * statistics.fmean(asked[f"{name}_seconds"]) for name in ("ttft", "tpot", "latency")}
    return found | {"itl": 1000 * itl["sum_seconds"] / itl["count"], "rate": tenant["count"] / SECONDS}


def aiperf(concurrency: int, folder: Path) -> Numbers:
    with server() as url:
        options = ["--model", "any", "--tokenizer", str(folder), "--url", url, "--ui", "none", "--artifact-dir", "out"]
        options += ["--endpoint-type", "completions", "--streaming", "--use-server-token-count"]
        options += ["--isl", str(INPUT), "--osl", str(OUTPUT), "--concurrency", str(concurrency)]
        options += ["--request-count", str(requests(concurrency)), "--warmup-request-count", str(concurrency)]
        run(folder, "aiperf", "profile", *options)
    found = json.loads((folder / "out" / "profile_export_aiperf.json").read_text())
    # What it calls inter-token latency is a mean per request: TPOT.
    names = {"ttft": "time_to_first_token", "itl": "inter_chunk_latency", "tpot": "inter_token_latency"}
    names |= {"latency": "request_latency", "rate": "request_throughput"}
    return {name: found[theirs]["avg"] for name, theirs in names.items()}


def vllm(concurrency: int, folder: Path) -> Numbers:
    with server() as url:
        options = ["--backend", "openai", "--endpoint", "/v1/completions", "--base-url", url, "--model", "any"]
        options += ["--tokenizer", str(folder), "--dataset-name", "random", "--random-input-len", str(INPUT)]
        options += ["--random-output-len", str(OUTPUT), "--num-warmups", str(concurrency)]
        options += ["--num-prompts", str(requests(concurrency)), "--max-concurrency", str(concurrency)]
        options += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--result-filename", "vllm.json"]
        run(folder, "vllm", "bench", "serve", *options)
    found = json.loads((folder / "vllm.json").read_text())
    names = {"ttft": "mean_ttft_ms", "itl": "mean_itl_ms", "tpot": "mean_tpot_ms", "latency": "mean_e2el_ms"}
    return {name: found[theirs] for name, theirs in names.items()} | {"rate": found["request_throughput"]}


def requests(concurrency: int) -> int:
    """As many as are answered in the time of a window."""
    return round(SECONDS / LATENCY_MS * 1000) * concurrency


@contextmanager
def server() -> Iterator[str]:
    """Its root. Both clients wait until it answers."""
    port = free_port()
    with subprocess.Popen([sys.executable, *SERVER, str(port), *DELAYS]) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def run(folder: Path, *command: str) -> None:
    """Raises SystemExit with what it printed when it fails."""
    # AIPerf takes a tokenizer's folder for a name of the hub where it believes to be offline.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


PEERS: dict[str, Callable[[int, Path], Numbers]] = {"aiperf": aiperf, "vllm": vllm}


def measured(client: Callable[[int, Path], Numbers], concurrency: int) -> Numbers:
    """By one client, in a folder of its own that has a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "examples" / "make_model.py", "0.6b", folder], check=True)
        return client(concurrency, Path(folder))


def main() -> None:
    there = [name for name in PEERS if shutil.which(name)]
    print(f"not on the PATH: {', '.join(sorted(PEERS.keys() - there)) or 'none'}")
    names = ["planted", "ours", *there]
    print(f"| in flight | number | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    worst = 0.0
    for concurrency in CONCURRENCIES:
        clients = [ours, *(PEERS[name] for name in there)]
        columns = [planted(concurrency), *(measured(client, concurrency) for client in clients)]
        for name in columns[0]:
            values = [column[name] for column in columns]
            worst = max([worst, *(100 * abs(value / values[1] - 1) for value in values[2:])])
            print(f"| {concurrency} | {name} | {' | '.join(f'{value:.2f}' for value in values)} |", flush=True)
    print(f"furthest from ours: {worst:.1f} %")
    sys.exit(worst > LIMIT_PERCENT)


if __name__ == "__main__":
    main()
