"""Records of another config, device or framework, and damaged ones, are refused; the printed command repairs them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.harness import Checkout, Result, export_names, measuring_jobs

CELL = "mps/alpha/2/1"
FILE = "results/cells/mps/alpha/n2/r1/raw.json"
TABLES = ["results/tables/summary.csv"]


def printed_command(checkout: Checkout, refused: Result) -> list[str]:
    """The files that the refusal's command re-measures, as a shell expands them."""
    found = re.findall(
        r"^re-measure them: snakemake --forcerun (.*) \(with the options of this run\)$", refused.out, re.M
    )
    assert len(found) == 1, refused.out
    answer = subprocess.run(
        ["bash", "-c", f"echo {found[0]}"], cwd=checkout.root, capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


def follow(checkout: Checkout, refused: Result, *targets: str, **options: Any) -> Result:
    """Run the command that the refusal printed."""
    assert refused.code == 1
    assert "Traceback" not in refused.out
    return checkout.run(*targets, options=["--forcerun", *printed_command(checkout, refused)], **options).ok()


def test_results_without_snakemakes_metadata_are_refused_under_another_window(finished: Checkout) -> None:
    shutil.rmtree(finished.root / ".snakemake")
    assert finished.run().ok().jobs == {}, "the same config has nothing to do"

    # A small subset, so that the test need not re-measure 28 cells.
    options: dict[str, Any] = {"config": ["window_seconds=0.4", "strategies=[mig]", "replicas=[1]", "workloads=alpha"]}
    refused = finished.run(**options)
    assert refused.failed == {"aggregate": {""}}
    assert "results/calibration/alpha.json and 4 more: window_seconds 0.5 → 0.4" in refused.out
    assert not (finished.results / "tables/summary.csv").exists(), "tables of another window must be removed"

    repaired = follow(finished, refused, **options)
    cells = {f"{strategy}/alpha/1/{repeat}" for strategy in ("exclusive", "mig") for repeat in (1, 2)}
    assert repaired.jobs == {"calibrate": {"alpha"}, **measuring_jobs(cells)}
    assert {json.loads(finished.record(cell)["spec"])["window_seconds"] for cell in cells} == {0.4}
    assert finished.run(**options).ok().jobs == {}


def test_cells_of_another_device_or_framework_are_refused(finished: Checkout) -> None:
    def frameworks(version: str) -> Callable[[dict[str, Any]], None]:
        return lambda record: record["provenance"].update(packages={"numpy": version})

    other = "mig/beta/1/2"
    # The newest cell is the reference for the others; a simulated cell has no framework of its own.
    last = max(finished.measured_cells(), key=lambda cell: finished.record(cell)["provenance"]["started_epoch_seconds"])
    finished.edit_record(last, frameworks("2.0.0"))
    finished.edit_record(CELL, lambda record: record["node"].update(device="0123456789abcdef"))
    finished.edit_record(other, frameworks("1.0.0"))
    (finished.results / "report.html").touch()
    refused = finished.run(*TABLES)
    assert refused.failed == {"aggregate": {""}}
    assert not (finished.results / "report.html").exists(), "as are the tables that it shows"
    assert f"{FILE}: not the newest cell's: device 0123456789abcdef → " in refused.out
    assert "cells/mig/beta/n1/r2/raw.json: not the newest cell's: package numpy 1.0.0 → 2.0.0" in refused.out
    assert follow(finished, refused, *TABLES).jobs == {"run_cell": {CELL, other}, "aggregate": {""}}


def test_a_whole_block_may_be_of_another_device_but_not_one_of_its_cells(finished: Checkout) -> None:
    def moved(record: dict[str, Any], output: float = 2.0) -> None:
        record["node"].update(device="0123456789abcdef")
        # Each device has its own calibration.
        record["calibration"].update(output_digest=[output])

    second = sorted(cell for cell in finished.measured_cells() if "/alpha/" in cell and cell.endswith("/2"))
    for cell in second:
        finished.edit_record(cell, moved)
    finished.run(*TABLES).ok()
    note = "Blocks were measured on 2 devices of this product; every ratio is of one device."
    assert note in (finished.results / "tables/summary.md").read_text()
    assert json.loads((finished.results / "manifest.json").read_text())["not_shown"] == note

    finished.edit_record("mps/alpha/1/1", moved)
    finished.edit_record("mig/alpha/1/2", lambda record: moved(record, output=3.0))
    refused = finished.run(*TABLES)
    assert refused.failed == {"aggregate": {""}}
    assert "cells/mps/alpha/n1/r1/raw.json: not the newest cell's: device 0123456789abcdef → " in refused.out
    assert "measured with another calibration" in refused.out


def test_a_block_of_a_joined_study_has_its_own_calibration_and_software(finished: Checkout) -> None:
    def measured(repeat: str, version: str) -> None:
        def edit(record: dict[str, Any]) -> None:
            record["provenance"].update(packages={"numpy": version})
            record["calibration"].update(output_digest=[float(repeat)])

        for cell in finished.measured_cells():
            if "/alpha/" in cell and cell.endswith(repeat):
                finished.edit_record(cell, edit)

    measured("1", "1.0.0")
    measured("2", "2.0.0")
    refused = finished.run(*TABLES)
    assert "measured with another calibration" in refused.out and "package numpy 1.0.0 → 2.0.0" in refused.out
    joined: dict[str, Any] = {"config": ["measured_elsewhere=true"]}
    finished.run(*TABLES, **joined).ok()
    note = "Software differs between blocks, and never within one: package numpy 1.0.0 or 2.0.0."
    assert note in (finished.results / "tables/summary.md").read_text()

    finished.edit_record("mps/alpha/1/1", lambda record: record["provenance"].update(packages={"numpy": "0.1"}))
    finished.edit_record("mig/alpha/1/2", lambda record: record["calibration"].update(output_digest=[3.0]))
    refused = finished.run(*TABLES, **joined)
    assert f"{FILE.replace('n2', 'n1')}: not the newest cell's: package numpy 0.1 → 1.0.0" in refused.out
    assert "cells/mig/alpha/n1/r2/raw.json: measured with another calibration" in refused.out


def test_a_device_file_of_another_device_than_the_cells_is_refused(finished: Checkout) -> None:
    device = finished.results / "nodes/device.json"
    facts = json.loads(device.read_text())
    facts["node"]["device"] = "0123456789abcdef"
    rewrite_unnoticed(finished, device, json.dumps(facts))
    refused = finished.run(*TABLES)
    assert "results/nodes/device.json: not the newest cell's device" in refused.out
    assert printed_command(finished, refused) == ["results/nodes/device.json"]


def rewrite_unnoticed(checkout: Checkout, path: Path, text: str) -> None:
    """Change a file without Snakemake noticing: keep its time and delete Snakemake's metadata."""
    times = path.stat()
    path.write_text(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    shutil.rmtree(checkout.root / ".snakemake")
    (checkout.results / "tables/summary.csv").unlink()


def test_a_calibration_that_changed_under_its_cells_is_refused(finished: Checkout) -> None:
    path = finished.results / "calibration/alpha.json"
    rewrite_unnoticed(finished, path, json.dumps(json.loads(path.read_text()) | {"output_digest": [2.0]}))
    options: dict[str, Any] = {"config": ["workloads=alpha", "strategies=[mig]", "replicas=[1]"]}
    refused = finished.run(*TABLES, **options)
    assert refused.code == 1
    assert "and 3 more: measured with another calibration than calibration/ holds now" in refused.out
    assert len(follow(finished, refused, *TABLES, **options).cells) == 4


def test_a_calibration_change_that_snakemake_notices_invalidates_its_cells(finished: Checkout) -> None:
    path = finished.results / "calibration/alpha.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"output_digest": [2.0]}))
    planned = finished.run(*TABLES, options=["--dry-run"]).ok()
    assert planned.cells == {cell for cell in finished.measured_cells() if "/alpha/" in cell}


def truncated(text: str) -> str:
    return text[: len(text) // 2]


def garbage(text: str) -> str:
    return "\x00\x01" * 100


def wrong_sums(text: str) -> str:
    record = json.loads(text)
    record["tenants"][0]["count"] += 1
    return json.dumps(record)


def test_damaged_records_are_refused(finished: Checkout) -> None:
    damages = {
        "mps/alpha/2/1": (truncated, "not valid JSON, damaged or cut off"),
        "mig/alpha/1/2": (garbage, "not valid JSON, damaged or cut off"),
        "time-slicing/beta/1/1": (wrong_sums, "tenant 0: its histogram holds"),
    }
    files = {}
    for cell, (damage, reason) in damages.items():
        path = finished.record_path(cell)
        path.write_text(damage(path.read_text()))
        files[cell] = (str(path.relative_to(finished.root)), reason)
    refused = finished.run()
    assert refused.code == 1
    assert refused.failed == {"export_histograms": export_names(damages), "aggregate": {""}}
    for file, reason in files.values():
        # Both the export and the table report it, since either may be the only target.
        assert refused.out.count(f"{file}: {reason}") == 2
        assert f"re-measure it: snakemake --forcerun {file} " in refused.out
    assert set(printed_command(finished, refused)) == {file for file, _ in files.values()}
    assert follow(finished, refused).jobs == measuring_jobs(damages)
