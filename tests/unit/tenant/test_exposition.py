import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from tenant.exposition import exposition
from tenant.recorder import Tally


def samples(text: bytes) -> dict[str, list]:
    return {family.name: family.samples for family in text_string_to_metric_families(text.decode())}


def test_prometheus_buckets_have_exact_counts() -> None:
    latencies_ns = (10 ** np.random.default_rng(1).uniform(2, 12.5, 3000)).astype(np.int64)
    tally = Tally()
    tally.add(latencies_ns)
    families = samples(exposition(tally, 4, True, "matmul", 2, "abc"))
    assert set(families) == {"sharebench_iteration_seconds", "sharebench_errors", "sharebench_ready"}
    assert families["sharebench_errors"][0].name == "sharebench_errors_total"
    assert families["sharebench_errors"][0].value == 4
    assert families["sharebench_ready"][0].value == 1
    histogram = families["sharebench_iteration_seconds"]
    assert all(
        {"workload": "matmul", "tenant": "2", "cell": "abc"}.items() <= sample.labels.items() for sample in histogram
    )
    buckets = {float(s.labels["le"]): s.value for s in histogram if s.name.endswith("_bucket")}
    # Bounds of the record, whose counts are exact.
    assert len(buckets) == 61
    for bound, value in buckets.items():
        assert value == np.count_nonzero(latencies_ns / 1e9 <= bound)
    assert {s.name: s.value for s in histogram if not s.name.endswith("_bucket")} == {
        "sharebench_iteration_seconds_count": 3000,
        "sharebench_iteration_seconds_sum": latencies_ns.sum() / 1e9,
    }
