"""Measured peak rates of this GPU: `python -m tenant.gpu.peaks` prints one JSON object.

It has FLOP/s by precision (those that the GPU supports), `copy_bytes_per_second` (read and written),
`read_bytes_per_second`, and `l2_bytes`. A result of a tenant above a peak is wrong, so each is the best of several
sizes and rounds: a peak that is too low would refuse correct results.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Small matrices do not fill a large GPU, and the largest ones may reach its power limit.
SIZES = (2048, 4096, 8192, 16384)
ROUNDS = 4
# A round repeats its work for this long, so that the cost of a launch does not matter.
ROUND_SECONDS = 0.02
# Sizes whose rounds would take longer are skipped: slow precisions fill the device with small matrices, too.
SIZE_SECONDS = 1.0
# Many times the size of an L2 cache.
BUFFER_BYTES = 1 << 30
CAPABILITIES = {"fp64": (0, 0), "fp32": (0, 0), "fp16": (7, 0), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}

Timer = Callable[[Callable[[], object], int], float]
Task = tuple[float, Callable[[], object]]
"""Work to time: the amount of one call (operations or bytes), and the call."""


def best_rate(tasks: Iterable[Task], timer: Timer) -> float:
    """Highest rate of the tasks in amount per second, 0 without tasks, which come in order of growing amounts.

    `timer(run, times)` returns the seconds that `times` calls took. Stops at the first task that would take too long.
    """
    best, seconds_per_amount = 0.0, 0.0
    for amount, run in tasks:
        if (ROUNDS + 2) * amount * seconds_per_amount > SIZE_SECONDS:
            break
        timer(run, 1)
        seconds = timer(run, 1)
        times = max(1, math.ceil(ROUND_SECONDS / seconds))
        seconds = min(seconds, *(timer(run, times) / times for _ in range(ROUNDS)))
        seconds_per_amount = seconds / amount
        best = max(best, 1 / seconds_per_amount)
    return best


def _run_seconds(run: Callable[[], object], times: int) -> float:
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _matmul(precision: str, size: int) -> Callable[[], object]:
    import torch

    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "fp8":
        fp8 = torch.float8_e4m3fn
        left = torch.randn(size, size, device="cuda").to(fp8)
        # The second factor must be stored by columns.
        right = torch.randn(size, size, device="cuda").to(fp8).t()
        scale = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)
    dtypes = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}
    first, second = (torch.randn(size, size, dtype=dtypes.get(precision), device="cuda") for _ in range(2))
    product = torch.empty_like(first)
    return lambda: torch.mm(first, second, out=product)


def _matmul_tasks(precision: str) -> Iterator[Task]:
    for size in SIZES:
        try:
            run = _matmul(precision, size)
            run()
        except RuntimeError:
            # Out of memory, or torch has no kernel for the precision. Any worse error occurs in the next call, too.
            return
        yield 2.0 * size**3, run


def _read_tasks(buffer: torch.Tensor) -> Iterator[Task]:
    import torch

    amount = float(buffer.numel() * buffer.element_size())
    rows, vector = buffer.view(-1, 4096), torch.ones(4096, device="cuda")
    yield amount, lambda: torch.mv(rows, vector)
    yield amount, buffer.sum


def measure_peaks() -> dict[str, float]:
    """Measure all peaks of the current CUDA device; takes a few seconds."""
    import torch

    with torch.inference_mode():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        capability = (properties.major, properties.minor)
        rates = {
            precision: best_rate(_matmul_tasks(precision), _run_seconds)
            for precision, needed in CAPABILITIES.items()
            if capability >= needed
        }
        free_bytes, _ = torch.cuda.mem_get_info()
        # The number of float32 elements, a multiple of what the tasks divide it by.
        elements = min(BUFFER_BYTES, free_bytes // 4) // 4 // (1 << 16) * (1 << 16)
        buffer = torch.randn(elements, device="cuda")
        source, target = buffer.chunk(2)
        copy = float(buffer.numel() * buffer.element_size()), lambda: target.copy_(source)
        rates["copy_bytes_per_second"] = best_rate([copy], _run_seconds)
        rates["read_bytes_per_second"] = best_rate(_read_tasks(buffer), _run_seconds)
    rates["l2_bytes"] = float(properties.L2_cache_size)
    return {name: value for name, value in rates.items() if value > 0}


def main() -> int:
    """Print the peaks; prints one line and returns 2 if they cannot be measured."""
    try:
        import torch
    except ModuleNotFoundError:
        print(f"the peaks need torch, which {sys.executable} lacks; run `make gpu-env`", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(f"torch of {sys.executable} finds no CUDA device", file=sys.stderr)
        return 2
    print(json.dumps(measure_peaks()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
