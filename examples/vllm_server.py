"""vLLM with a model of random weights: `vllm_server.py SHAPE PORT [OPTION ...]`, with a shape of make_model.py.

Run it in an environment with vLLM 0.26 or later. It writes the model once into the folder of vLLM's caches
(VLLM_CACHE_ROOT, ~/.cache/vllm), downloads nothing, and becomes vLLM's OpenAI API server. Options are vLLM's and
override those here, with two additions:

--cores=I/N  Use only the I-th (from 0) of N equal parts of the cores, as servers do that are pinned.
NAME=XG/N    X GiB over N, so that servers have one total: --kv-cache-memory-bytes=12G/{replicas}.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from make_model import make

variables = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    # flashinfer's sampler is compiled with the CUDA toolkit, which many machines lack.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # The engine's process inherits its parent's imports, which saves about 10 s. If CUDA is already in use, vLLM spawns
    # the process instead.
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",
    # Several servers share the cores of a host.
    "OMP_NUM_THREADS": "2",
}


def options(given: list[str]) -> Iterator[str]:
    """Yield vLLM's options of those given, and pin this process as `--cores` says."""
    for option in given:
        if pinned := re.fullmatch(r"--cores=(\d+)/(\d+)", option):
            number, parts = map(int, pinned.groups())
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, cores[number * len(cores) // parts : (number + 1) * len(cores) // parts] or cores)
        elif amount := re.fullmatch(r"(--.+=)(\d+)G/(\d+)", option):
            yield f"{amount[1]}{(int(amount[2]) << 30) // int(amount[3])}"
        else:
            yield option


shape, port, *more = sys.argv[1:]
# One path for all servers and cells: vLLM compiles a model once for each path, which takes a minute or more.
model = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser() / "sharebench" / shape
make(shape, model)
settings = [
    f"--model={model}",
    "--served-model-name=any",
    "--host=127.0.0.1",
    f"--port={port}",
    "--max-model-len=2048",
    # A server alone takes all requests that several would share.
    "--max-num-seqs=256",
    # A fixed size, so that each server has the same cache in every cell. With a share of the GPU, vLLM would compare
    # the free memory before and after a trial run, which starting neighbours change. The share must only be free.
    "--kv-cache-memory-bytes=2G",
    "--gpu-memory-utilization=0.2",
    # Every prompt is computed.
    "--no-enable-prefix-caching",
    # Compiled, with full CUDA graphs for decoding and piecewise ones for what is mixed: vLLM's default. For starts
    # within half a minute and slower answers: --optimization-level=0.
    "--optimization-level=2",
    "--disable-uvicorn-access-log",
]
server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *settings, *options(more)]
os.execve(sys.executable, server, variables | os.environ)
