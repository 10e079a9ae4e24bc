"""Real tenants that die, hang or do not fit: the cell ends with a status and the end of their logs."""

import pytest
from pipeline.harness import Checkout, measuring_jobs

NEVER = "mps/is-never-ready/3/1"
# The time of the study for a start, which nothing else may take.
LONGEST_SECONDS = 120


@pytest.mark.thorough
def test_each_failure_of_a_tenant_is_an_outcome_of_its_cell(untouched: Checkout) -> None:
    untouched.study = "misbehaving.yaml"
    untouched.run().ok()
    # An outcome is not re-measured: with one more workload and another time-out, only the new cell is measured.
    untouched.edit("misbehaving.yaml", "workloads: [", "workloads: [is-never-ready, ")
    result = untouched.run(config=["timeouts={start_seconds: 5}"]).ok()
    assert result.jobs == {"calibrate": {"is-never-ready"}, **measuring_jobs({NEVER})}
    start_seconds = 5
    # On a busy machine the tenant that is well may take longer.
    while untouched.record(NEVER)["tenants"][0]["status"] == "hung" and start_seconds < 80:
        start_seconds *= 4
        untouched.delete_records(NEVER)
        untouched.run(config=[f"timeouts={{start_seconds: {start_seconds}}}"]).ok()
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []
    records = {cell.split("/")[1]: untouched.record(cell) for cell in untouched.measured_cells()}
    assert {name: record["status"] for name, record in records.items()} == {
        "dies": "crashed",
        "hangs": "hung",
        "is-killed": "killed",
        "is-never-ready": "hung",
        "runs-out-of-memory": "oom",
    }
    assert max(record["timing"]["total_seconds"] for record in records.values()) < LONGEST_SECONDS

    assert records["dies"]["reason"].endswith("tenants crashed: ended by itself with exit code 1")
    logs = [tenant["exit"]["log_tail"] for tenant in records["dies"]["tenants"] if tenant["exit"]]
    assert any("RuntimeError: the weights are missing" in log for log in logs)
    assert "tenants killed: ended by SIGKILL" in records["is-killed"]["reason"]
    assert records["is-never-ready"]["reason"] == f"2 of 3 tenants hung: not ready after {start_seconds} s"
    assert records["runs-out-of-memory"]["reason"] == "1 of 3 tenants fit into memory"
    assert [tenant["status"] for tenant in records["runs-out-of-memory"]["tenants"]] == ["not-measured", "oom", "oom"]
    for name in ("dies", "is-killed", "is-never-ready", "runs-out-of-memory"):
        assert all(tenant["count"] == 0 for tenant in records[name]["tenants"]), "a failed cell has no latencies"
