"""A conformance study on the stand-in, from cells to the closing line; every tenant computes wrong products."""

from xml.etree import ElementTree

import pytest
from pipeline.harness import Checkout
from tables import rows


@pytest.mark.thorough
def test_a_broken_promise_is_found_and_told(untouched: Checkout) -> None:
    untouched.study = "config/conformance.yaml"
    right = "product: np.ndarray = vectors @ weights.T"
    untouched.edit("scripts/tenant/workloads/conformance.py", right, f"{right} * 1.01")
    # One fault is enough here, and the busy processors of a test keep no share.
    config = ["strategies=[exclusive,time-slicing,mps]", "faults=[killed]", "results=results"]
    result = untouched.run(config=config).ok()
    table = rows(untouched.results / "tables" / "conformance.csv")
    assert {row["strategy"] for row in table} == {"exclusive", "time-slicing", "mps"}
    assert len({row["promise"] for row in table}) >= 10
    verdicts = {(row["promise"], row["strategy"]): row["verdict"] for row in table}
    assert {verdicts["answers", name] for name in ("exclusive", "time-slicing", "mps")} == {"broken"}
    assert verdicts["start", "mps"] == verdicts["visible", "mps"] == "kept"
    assert verdicts["fault killed", "mps"] == verdicts["memory", "mps"] == "not promised"
    broken = sum(row["verdict"] == "broken" for row in table)
    suites = ElementTree.parse(untouched.results / "tables" / "conformance.xml").getroot()
    assert suites.get("failures") == str(broken)
    record = untouched.record("mps/conformance/2/1")
    assert record["promises"]["failure"] is None
    assert record["promises"]["tasks"]["answers"][1]["wrong"]
    assert untouched.processes() == []
    assert result.code == 0
    # The command reads records, whatever lies in tables/.
    (untouched.results / "tables" / "conformance.csv").write_text("promise,strategy,replicas,verdict\n")
    printed = untouched.ask("conformance", "results", code=1)
    assert sum(line.startswith("answers") and line.endswith("broken") for line in printed.splitlines()) == 3
    assert sum(line.startswith("broken: answers") for line in printed.splitlines()) == 3
    assert f"{broken} promises broken" in printed.splitlines()[-1]
