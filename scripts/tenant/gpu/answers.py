"""Results of torch's libraries against float64: products of language models' shapes, convolutions and attention.

The right results are computed on the same device by multiplying and adding elements, without a library of products.
`python -m tenant.gpu.answers` prints what it found, with the number of SMs that it saw, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tenant.tasks import BATCHES, Answers

# Rows and columns of weights in models of 0.6 to 8 billion parameters; the first eight were wrong on an H100.
SHAPES = (
    (11264, 2048),
    (2560, 2048),
    (2048, 2048),
    (2048, 5632),
    (4096, 4096),
    (12288, 4096),
    (3072, 1024),
    (8192, 8192),
    (6144, 1024),
    (1024, 3072),
    (12288, 2048),
    (2048, 6144),
    (19456, 2560),
    (2560, 9728),
    (28672, 4096),
    (4096, 14336),
)
FLOATS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Batch, channels in and out, size of the image, and size of the kernel.
CONVOLUTIONS = ((1, 64, 64, 56, 3), (8, 64, 128, 28, 3), (8, 256, 256, 14, 3), (1, 3, 64, 112, 7), (8, 512, 512, 7, 1))
# Batch, heads, queries, keys, and size of a head: one token after a long prompt, and a prompt.
ATTENTIONS = ((8, 16, 1, 1024, 128), (1, 32, 1, 4096, 64), (1, 16, 128, 128, 128), (2, 8, 192, 192, 64))
SEED = 1
# Each product runs this number of times, as some errors come and go.
RUNS = 2
# The least batch of torch's int8 product is above 16.
INT8_BATCH = 32
INT8_LIMIT = 127


def library_versions() -> dict[str, str]:
    """Versions of CUDA's libraries in this process, as far as they are known."""
    versions = {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{versions['cuda'].split('.')[0]}")
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        versions["cublas"] = str(library.cublasLtGetVersion())
    except (OSError, AttributeError):
        pass
    return versions


def check_answers(device: torch.device) -> Answers:
    """Run all operations in all precisions that the device has."""
    torch.manual_seed(SEED)
    answers = Answers()
    for precision, dtype in FLOATS.items():
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        for shape in SHAPES:
            weights = (torch.randn(shape, device=device) / shape[1] ** 0.5).to(dtype)
            vectors = torch.randn(max(BATCHES), shape[1], device=device).to(dtype)
            _check_linear(answers, precision, shape, vectors, weights, weights)
        for case in CONVOLUTIONS:
            _check(answers, "convolution", precision, case, case[0], *_convolution(case, dtype, device))
        for case in ATTENTIONS:
            _check(answers, "attention", precision, case, case[0], *_attention(case, dtype, device))
    _check_fp8(answers, device)
    _check_int8(answers, device)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    return answers


def _check(
    answers: Answers,
    kind: str,
    precision: str,
    shape: tuple[int, ...],
    batch: int,
    compute: Callable[[], torch.Tensor],
    right: torch.Tensor,
) -> None:
    try:
        # NaN is larger than any number to torch, so that it is not lost.
        errors = [float((compute().double() - right).abs().max()) for _ in range(RUNS)]
    except (RuntimeError, ValueError, AttributeError) as error:
        if precision in FLOATS:
            raise
        # Not every device, and no library for every shape, has it.
        answers.skipped[precision] = str(error).splitlines()[0]
        return
    worst = max(errors) if all(error == error for error in errors) else float("nan")
    answers.add(kind, precision, shape, batch, worst)


def _check_linear(
    answers: Answers,
    precision: str,
    shape: tuple[int, ...],
    vectors: torch.Tensor,
    weights: torch.Tensor,
    exact: torch.Tensor,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.linear,
    batches: tuple[int, ...] = BATCHES,
    scale: float = 1.0,
) -> None:
    """Compare the product for each batch; `exact` has the weights as numbers, `scale` makes right values about 1."""
    right = _right_product(vectors, exact) * scale
    for batch in batches:
        own = vectors[:batch]
        _check(answers, "linear", precision, shape, batch, lambda: product(own, weights) * scale, right[:batch])  # noqa: B023


def _right_product(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The product (batch, rows) of vectors (batch, columns) and weights (rows, columns), in float64."""
    exact = weights.double()
    return torch.stack([(exact * vector).sum(1) for vector in vectors.double()])


def _check_fp8(answers: Answers, device: torch.device) -> None:
    dtype, one = torch.float8_e4m3fn, torch.ones((), device=device)

    def product(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(vectors, weights.t(), one, one, out_dtype=torch.bfloat16)

    for shape in SHAPES:
        scale = shape[1] ** -0.5
        weights = torch.randn(shape, device=device).to(dtype)
        vectors = torch.randn(max(BATCHES), shape[1], device=device).to(dtype)
        _check_linear(answers, "fp8", shape, vectors, weights, weights, product, scale=scale)


def _check_int8(answers: Answers, device: torch.device) -> None:
    def product(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(vectors, weights.t())

    for shape in SHAPES:
        drawn = (
            torch.randint(-INT8_LIMIT, INT8_LIMIT + 1, size, device=device) for size in (shape, (INT8_BATCH, shape[1]))
        )
        weights, vectors = (each.to(torch.int8) for each in drawn)
        scale = 3 / INT8_LIMIT**2 / shape[1] ** 0.5
        _check_linear(answers, "int8", shape, vectors, weights, weights, product, (INT8_BATCH,), scale)


def _convolution(case: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Any, torch.Tensor]:
    batch, channels, outputs, size, kernel = case
    images = torch.randn(batch, channels, size, size, device=device).to(dtype)
    weights = (torch.randn(outputs, channels, kernel, kernel, device=device) / (channels * kernel**2) ** 0.5).to(dtype)
    columns = functional.unfold(images.double(), kernel, padding=kernel // 2)
    rows = weights.double().reshape(outputs, -1, 1)
    right = torch.stack([(columns * row).sum(1) for row in rows], 1).view(batch, outputs, size, size)
    return lambda: functional.conv2d(images, weights, padding=kernel // 2), right


def _attention(case: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Any, torch.Tensor]:
    batch, heads, queries, keys, size = case
    asked = torch.randn(batch, heads, queries, size, device=device).to(dtype)
    known, values = torch.randn(2, batch, heads, keys, size, device=device).to(dtype)

    def attend(head: tuple[torch.Tensor, ...]) -> torch.Tensor:
        own, other, value = (each.double() for each in head)
        shares = torch.softmax((own[:, None] * other[None]).sum(-1) / size**0.5, -1)
        return (shares[:, :, None] * value[None]).sum(1)

    flat = zip(*(each.flatten(0, 1) for each in (asked, known, values)), strict=True)
    # A mean over keys is small, and here made about 1.
    scale = (keys / math.e) ** 0.5
    right = torch.stack(list(map(attend, flat))).view(batch, heads, queries, size) * scale
    return lambda: functional.scaled_dot_product_attention(asked, known, values) * scale, right


def main() -> None:
    device = torch.device("cuda")
    answers = check_answers(device)
    sm_count = torch.cuda.get_device_properties(device).multi_processor_count
    print(json.dumps({"sm_count": sm_count, **vars(answers), "versions": library_versions()}), flush=True)


if __name__ == "__main__":
    main()
