"""The language model's published output against the same model in single precision on a CPU. Skipped without torch."""

import json
from pathlib import Path

import pytest

from sharebench.datasets import archive
from tenant import workloads

pytest.importorskip("torch", reason="torch is only in the GPU environment (make gpu-env)")

LIMITS = Path(__file__).resolve().parents[3] / "published/h200/limits"
# Half precision has eleven bits; its error grows over 22 layers.
RELATIVE_ERROR = 0.002


def published(strategy: str, replicas: int) -> list[list[float | None]]:
    """Mean magnitude, largest and negated smallest element of each tenant's output, in all repeats; None for NaN."""
    records = sorted(archive.verified_folder(LIMITS).glob(f"cells/{strategy}/llm-decode-graph/n{replicas}/r*/raw.json"))
    return [tenant["output_digest"] for path in records for tenant in json.loads(path.read_text())["tenants"]]


def test_published_outputs_are_right_without_limits_and_wrong_with_them() -> None:
    model = workloads.create(workloads.load_module("llm_decode", "cpu"), {"dtype": "float32"}, "cpu")
    model.attach()
    model.step()
    right = pytest.approx(model.output_digest(), rel=RELATIVE_ERROR)
    # Inference mode is the thread's, and other tests train in it.
    model._thread_context.close()
    for strategy, replicas in (("exclusive", 1), ("mps", 3), ("mps", 7)):
        digests = published(strategy, replicas)
        assert digests and all(digest == right for digest in digests)
    assert {tuple(digest) for digest in published("mps-limited", 3)} == {(None, None, None)}
    narrow = published("mps-limited", 7)
    assert narrow and all(digest != right for digest in narrow)
