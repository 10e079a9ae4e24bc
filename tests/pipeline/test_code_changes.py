"""The cells that an edit of the measuring code invalidates, on a node that runs this code."""

import pytest
from pipeline.harness import Checkout


def stale_cells(checkout: Checkout) -> set[str]:
    """The cells that a dry run would measure."""
    return checkout.run(options=["--dry-run"]).ok().cells


def cells(*workloads: str) -> set[str]:
    return {
        f"{strategy}/{workload}/{replicas}/1"
        for strategy, replicas in (("exclusive", 1), ("time-slicing", 2), ("mps", 2))
        for workload in workloads
    }


def test_a_new_workload_is_one_file_and_one_entry(finished_on_cpu: Checkout) -> None:
    workloads = finished_on_cpu.root / "scripts/tenant/workloads"
    (workloads / "x.py").write_text((workloads / "held.py").read_text())
    assert stale_cells(finished_on_cpu) == set()
    finished_on_cpu.edit("cpu.yaml", "workloads: [held, product]", "workloads: [held, product, x]")
    finished_on_cpu.edit(
        "cpu.yaml", "workload_catalogue:\n", "workload_catalogue:\n  x: {module: x, min_window_seconds: 0.1}\n"
    )
    assert stale_cells(finished_on_cpu) == cells("x")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("workloads/matmul.py", "default_rng(0)", "default_rng(1)", cells("product")),
        ("loop.py", '"""', '"""In other words: ', set()),
        ("recorder.py", "\nclass ", "\n# A thought.\nclass ", set()),
        ("exposition.py", "import", "import sys\nimport", cells("held", "product")),
    ],
    ids=["one workload", "a docstring", "a comment", "the tenant's core"],
)
def test_an_edit_invalidates_the_cells_that_its_code_measures(
    finished_on_cpu: Checkout, file: str, old: str, new: str, expected: set[str]
) -> None:
    path = finished_on_cpu.root / "scripts/tenant" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert stale_cells(finished_on_cpu) == expected


def test_an_edit_of_what_judges_plans_or_drives_a_run_measures_nothing_again(finished_on_cpu: Checkout) -> None:
    for file in ("read/gates/gates.py", "study/study.py", "measure/run/jobs.py"):
        with (finished_on_cpu.root / "scripts/sharebench" / file).open("a") as code:
            code.write("\nEXTRA = 1\n")
    jobs = finished_on_cpu.run(options=["--dry-run"]).ok().jobs
    assert "aggregate" in jobs
    assert not jobs.keys() & {"characterise_node", "calibrate", "configure_node", "run_cell"}
