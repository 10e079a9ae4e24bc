"""Visits to a device add up to studies: each measures what is missing, and their records are joined."""

import shutil
import subprocess
import sys
import zipfile

import pytest
from pipeline.harness import REPOSITORY, TIMEOUT_SECONDS, Checkout
from tables import rows

pytestmark = pytest.mark.thorough

STUDY = """
node: simulated
null_cells: false
strategies: [mps]
replicas: [2]
workloads: [alpha]
repeats: 2
window_seconds: 0.5
workload_catalogue:
  alpha:
    min_window_seconds: 0.1
    simulated: {serial_seconds: 0.002, parallel_sm_seconds: 0.5}
"""


SIMULATED = "a100-80gb-pcie-simulated"


@pytest.fixture
def checkout(untouched: Checkout) -> Checkout:
    folder = untouched.root / "published" / "two"
    folder.mkdir(parents=True)
    (folder / "01-first.yaml").write_text(STUDY)
    (untouched.root / "tests" / "gpu").mkdir(parents=True)
    for name in ("visit.py", "probes.py"):
        shutil.copy(REPOSITORY / "tests/gpu" / name, untouched.root / "tests/gpu")
    return untouched


def visit(checkout: Checkout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tests/gpu/visit.py", "--edition", "published/two", *arguments]
    environment = checkout.environment(checkout.root / "tmp/visit.ledger")
    return subprocess.run(
        command, cwd=checkout.root, env=environment, text=True, capture_output=True, timeout=TIMEOUT_SECONDS
    )


def carry(checkout: Checkout) -> set[str]:
    """Keep only this visit's archive, as on a machine that is given back; returns the records in the archive."""
    (made,) = (checkout.root / "results/two").glob("*/*.zip")
    carried = checkout.root / "published/carried/two" / made.parent.name
    carried.mkdir(parents=True, exist_ok=True)
    shutil.move(made, carried)
    shutil.rmtree(checkout.root / "results")
    shutil.rmtree(checkout.root / ".snakemake")
    return {name for name in zipfile.ZipFile(carried / made.name).namelist() if name.endswith("raw.json")}


def records(study: str, repeat: int) -> set[str]:
    return {f"{study}/cells/{point}/r{repeat}/raw.json" for point in ("exclusive/alpha/n1", "mps/alpha/n2")}


def test_visits_measure_each_cell_once_with_the_same_code_and_are_joined(checkout: Checkout) -> None:
    shutil.copy(checkout.root / "published/two/01-first.yaml", checkout.root / "published/two/02-second.yaml")
    first = visit(checkout, "--config", "{repeats: 1}")
    assert first.returncode == 0 and "all cells are there" in first.stdout, first.stdout + first.stderr
    assert carry(checkout) == records("first", 1) | records("second", 1)
    assert f"{SIMULATED}: first: 2 of 4 cells, not joined" in visit(checkout, "--join").stdout

    code = checkout.root / "scripts/sharebench/measure/cell/cell.py"
    before = code.read_text()
    code.write_text(f"{before}\nCHANGED = 1\n")
    refused = visit(checkout)
    assert refused.returncode == 1 and not (checkout.root / "results/two/now").exists()
    (line,) = refused.stderr.strip().splitlines()
    assert "the measuring code has changed; measure with its commit: " in line
    code.write_text(before)

    second = visit(checkout)
    assert second.returncode == 0 and "all cells are there" in second.stdout, second.stdout + second.stderr
    assert carry(checkout) == records("first", 2) | records("second", 2)
    assert "this visit" not in visit(checkout).stdout

    other = visit(checkout, "--minutes", "0", "--config", "{simulated: {product: B200}}")
    assert "== first: 2 cells" in other.stdout, "another product is another data set"

    joined = visit(checkout, "--join")
    where = f"results/two/{SIMULATED}"
    assert f"second: 4 of 4 cells, joined in {where}/second" in joined.stdout, joined.stdout + joined.stderr
    checkout.run("published/edition/first", config=[f"from={where}/first"]).ok()
    published = checkout.root / "published/edition/first"
    cells = rows(published / "tables/cells.csv")
    assert len(cells) == 6 and len({row["run_id"] for row in cells}) == 2
    shared = next(row for row in rows(published / "tables/summary.csv") if row["strategy"] == "mps")
    assert shared["slowdown_n"] == "2"


def test_an_unfinished_unit_is_kept_and_remeasured_as_a_whole(checkout: Checkout) -> None:
    visit(checkout, "--config", "{repeats: 1}")
    (checkout.root / "results/two/now/first/cells/mps/alpha/n2/r1/raw.json").unlink()
    over = visit(checkout, "--minutes", "0", "--left", "100")
    assert over.returncode == 0 and "not all cells are there yet" in over.stdout, over.stdout + over.stderr
    late = visit(checkout, "--minutes", "0")
    assert "does not fit into what is left" in late.stdout and "not all cells are there yet" in late.stdout
    assert carry(checkout) == {"first/unfinished/cells/exclusive/alpha/n1/r1/raw.json"}
    visit(checkout, "--config", "{repeats: 1}")
    assert carry(checkout) == records("first", 1)
