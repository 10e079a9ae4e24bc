"""Records that contradict their spec or their path, which no table takes."""

import pytest
from unit import factories

from sharebench.model.records import record
from sharebench.model.records.record import RecordError
from sharebench.read.gates.gates import read_judged

END = "window.end_monotonic_seconds"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({END: 101.0}, "its window is 1 s, its spec says 2 s"),
        ({END: 104.0}, "its window is 4 s, its spec says 2 s"),
        ({END: 100.0}, "its window of 0 s is not positive"),
        ({END: 98.0}, "its window of -2 s is not positive"),
        ({"tenants": []}, "its tenants are none; its spec says matmul, matmul"),
        ({"tenants.1.index": 0}, r"its tenants are 0 \(matmul\), 0 \(matmul\); its spec says"),
        ({"tenants.1.workload": "bert"}, r"its tenants are 0 \(matmul\), 1 \(bert\); its spec says"),
        ({"cell.replicas": 7}, "its replicas is 7, its spec says 2"),
        ({"cell.strategy": "mig"}, "its strategy is mig, its spec says mps"),
        ({"node.kind": "cpu"}, "its node is of kind cpu, its spec says simulated"),
        ({"spec": "{}"}, "its spec cannot be read"),
    ],
)
def test_a_record_that_contradicts_its_spec_is_damaged(tmp_path, changes, says):
    path = tmp_path / "raw.json"
    record.write(path, factories.with_changes(factories.record("mps", [[0.004] * 300, [0.005] * 250]), changes))
    with pytest.raises(RecordError, match=f"^{path}: a damaged record: {says}") as refused:
        read_judged(path)
    assert "\n" not in str(refused.value)


def test_a_tenant_lists_no_more_requests_than_it_counts(tmp_path):
    path, tenant = tmp_path / "raw.json", factories.tenant(0, factories.back_to_back([0.2] * 2))
    streamed = factories.streamed(tenant, [0.0, 0.2, 0.4], [0.1] * 3, [[0.1]] * 3)
    record.write(path, factories.record("mps", tenants=[streamed]))
    with pytest.raises(RecordError, match=r"tenant 0 lists 3 requests, its count says 2$"):
        read_judged(path)


def test_a_cell_that_did_not_run_needs_no_tenants(tmp_path):
    record.write(tmp_path / "raw.json", factories.record(status="infeasible", reason="MIG mode is off", replicas=2))
    assert read_judged(tmp_path / "raw.json")["tenants"] == []


def test_a_record_is_refused_where_another_belongs(tmp_path):
    paths = [tmp_path / f"cells/mps/matmul/n1/r{repeat}/raw.json" for repeat in (1, 2)]
    for path in paths:
        record.write(path, factories.record("mps"))
    assert read_judged(paths[0])["cell"]["repeat"] == 1
    with pytest.raises(RecordError, match=r"r2/raw\.json: a record in the wrong place: it is of mps .* repeat 1"):
        read_judged(paths[1])
