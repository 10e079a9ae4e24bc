"""vLLM with a model of random weights: `vllm_server.py SHAPE PORT [OPTION ...]`, with a shape of make_model.py.

It runs in the environment of vLLM, of which it needs 0.26 or later, and becomes vLLM's server of OpenAI's API. The
model's folder is made where it is started, and nothing is downloaded. Options are vLLM's, and replace those here.
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
    # The sampler of flashinfer compiles itself with CUDA's toolkit, which many machines lack.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # The engine's process inherits what its parent has imported, which saves a second import of some 10 s. Where CUDA
    # is in use before, vLLM starts it afresh.
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
    # As much for each server in every cell. By a share of the GPU, vLLM would look at what is free before and after a
    # trial run, in which neighbours that start count too. The share must still be free, and is not used otherwise.
    "--kv-cache-memory-bytes=2G",
    "--gpu-memory-utilization=0.2",
    # Each prompt is computed.
    "--no-enable-prefix-caching",
    # A start takes less than a minute. Without these lines vLLM compiles the model, which takes minutes when it is new.
    "--compilation-config.mode=0",
    "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY",
    "--compilation-config.cudagraph_capture_sizes=[1, 2, 4, 8, 16, 32]",
    "--disable-uvicorn-access-log",
]
server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options, *more]
os.execve(sys.executable, server, variables | os.environ)
