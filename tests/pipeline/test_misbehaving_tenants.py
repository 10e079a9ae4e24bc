"""Real tenants that die, hang or do not fit: the cell ends in bounded time, with a status and their last words."""

from typing import Any

from pipeline.harness import Checkout

LONGEST_SECONDS = 20


def test_every_ending_is_a_row_of_the_table(untouched: Checkout) -> None:
    untouched.study = "misbehaving.yaml"
    result = untouched.run().ok()
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []
    records = {cell.split("/")[1]: untouched.record(cell) for cell in result.cells}
    assert {name: record["status"] for name, record in records.items()} == {
        "dies": "crashed",
        "hangs": "hung",
        "is-killed": "killed",
        "is-never-ready": "hung",
        "runs-out-of-memory": "oom",
    }
    assert max(record["timing"]["total_seconds"] for record in records.values()) < LONGEST_SECONDS

    assert records["dies"]["reason"].endswith("tenants crashed: ended by itself with exit code 1")
    assert "RuntimeError: the weights are missing" in last_words(records["dies"])
    assert "tenants killed: ended by SIGKILL" in records["is-killed"]["reason"]
    assert records["is-never-ready"]["reason"] == "2 of 3 tenants hung: not ready after 4 s"
    assert records["runs-out-of-memory"]["reason"] == "1 of 3 tenants fit into memory"
    assert [tenant["status"] for tenant in records["runs-out-of-memory"]["tenants"]] == ["not-measured", "oom", "oom"]
    for name in ("dies", "is-killed", "is-never-ready", "runs-out-of-memory"):
        assert all(tenant["count"] == 0 for tenant in records[name]["tenants"]), "a cell that failed has no latencies"
    assert untouched.run().ok().jobs == {}, "an outcome is not re-measured"


def last_words(record: dict[str, Any]) -> str:
    """The ends of the logs of the tenants that ended."""
    return "".join(tenant["exit"]["log_tail"] for tenant in record["tenants"] if tenant["exit"])
