"""vLLM with a model of random weights: `vllm_server.py SHAPE PORT [OPTION ...]`, with a shape of make_model.py.

Run it in an environment with vLLM 0.26 or later. It writes the model's folder into the current folder, downloads
nothing, and becomes vLLM's OpenAI API server. Options are vLLM's and override those here.
"""

import os
import sys
from pathlib import Path

from make_model import make

shape, port, *more = sys.argv[1:]
model = Path.cwd() / "model"
make(shape, model)
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
options = [
    f"--model={model}",
    "--served-model-name=any",
    "--load-format=dummy",
    "--host=127.0.0.1",
    f"--port={port}",
    "--max-model-len=2048",
    "--max-num-seqs=32",
    # A fixed size, so that each server has the same cache in every cell. With a share of the GPU, vLLM would compare
    # the free memory before and after a trial run, which starting neighbours change. The share must only be free.
    "--kv-cache-memory-bytes=2G",
    "--gpu-memory-utilization=0.2",
    # Every prompt is computed.
    "--no-enable-prefix-caching",
    # With these options a start takes less than a minute. Otherwise vLLM compiles a new model for minutes.
    "--compilation-config.mode=0",
    "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY",
    "--compilation-config.cudagraph_capture_sizes=[1, 2, 4, 8, 16, 32]",
    "--disable-uvicorn-access-log",
]
server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options, *more]
os.execve(sys.executable, server, variables | os.environ)
