"""N processes that each repeat one workload on a GPU, independent of sharebench; prints latencies in µs as JSON."""

import argparse
import json
import multiprocessing
import time
from typing import Any

import torch


def step_of(workload: str) -> Any:
    if workload == "matmul-256":
        left, right, product = torch.randn(3, 256, 256, dtype=torch.float64).cuda()
        return lambda: torch.mm(left, right, out=product)
    if workload == "resnet50":
        from torchvision.models import resnet50

        model, picture = resnet50(), torch.randn(1, 3, 224, 224)
    else:
        from transformers import YolosConfig, YolosForObjectDetection

        heads = {"num_attention_heads": 6, "num_labels": 91, "image_size": [512, 864]}
        small = YolosConfig(hidden_size=384, intermediate_size=1536, **heads)
        model, picture = YolosForObjectDetection(small), torch.randn(1, 3, 512, 864)
    model, picture = model.cuda().eval(), picture.cuda()
    return lambda: model(picture)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def run(given: argparse.Namespace, barrier: Any, results: Any) -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.cuda.set_stream(torch.cuda.Stream())
    step, taken = step_of(given.workload), []
    [step() for _ in range(10)]
    if given.graph:
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph(), stream=torch.cuda.current_stream()):
            step()
        step = graph.replay
    barrier.wait()
    begin, end = (time.perf_counter_ns() + int(lead * 1e9) for lead in (1, 1 + given.seconds))  # all run together
    while (before := time.perf_counter_ns()) < end + 3 * 10**8:
        step()
        torch.cuda.current_stream().synchronize()
        taken.append((before, time.perf_counter_ns() - before))
    us = sorted(duration / 1e3 for before, duration in taken if begin <= before < end)
    results.put({"count": len(us), "mean": sum(us) / len(us), "p50": us[len(us) // 2], "p99": us[len(us) * 99 // 100]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--workload", choices=("matmul-256", "resnet50", "yolos"), default="matmul-256")
    parser.add_argument("--graph", action="store_true", help="replay one captured CUDA graph")
    parser.add_argument("--seconds", type=float, default=10)
    given, spawn = parser.parse_args(), multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(given.processes), spawn.Queue()
    for _ in range(given.processes):
        spawn.Process(target=run, args=(given, barrier, results), daemon=True).start()
    tenants = [results.get(timeout=given.seconds + 120) for _ in range(given.processes)]
    mean = sum(each["count"] * each["mean"] for each in tenants) / sum(each["count"] for each in tenants)
    print(json.dumps({**vars(given), "mean": mean, "tenants": tenants}))
