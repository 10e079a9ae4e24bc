"""What leaves a checkout: an archive that another one verifies and rebuilds from, and what is published."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
from pipeline.harness import Checkout, table_jobs
from tables import rows

from sharebench.core.study_config import StudyConfig
from sharebench.figures.catalogue import names_for


def test_another_checkout_verifies_an_archive_and_rebuilds_from_it(finished: Checkout, another: Checkout) -> None:
    assert finished.run("archive").ok().jobs == {"archive": {""}}
    assert finished.run("archive").ok().jobs == {}, "once is enough"
    theirs = another.root / "tmp/theirs.zip"
    shutil.copy(finished.results / "archive.zip", theirs)
    how: dict[str, Any] = {"study": "cpu.yaml", "config": [f"from={theirs}"]}
    assert another.run(**how).ok().jobs == table_jobs(set())
    made = another.root / "results/from/theirs"
    assert (made / "tables/summary.csv").read_bytes() == (finished.results / "tables/summary.csv").read_bytes()
    assert another.run(**how).ok().jobs == {}, "it is not unpacked twice"

    content = bytearray(theirs.read_bytes())
    with zipfile.ZipFile(theirs) as packed:
        entry = packed.getinfo("cells/mps/alpha/n2/r1/raw.json")
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0x10
    (another.root / "tmp/changed.zip").write_bytes(content)
    before = another.files()
    refused = another.run(config=[f"from={another.root}/tmp/changed.zip"])
    assert refused.code == 1 and refused.jobs == {}
    (line,) = [line for line in refused.out.splitlines() if "config:" in line]
    assert line.endswith("changed.zip: cells/mps/alpha/n2/r1/raw.json is not what was archived; get the archive again")
    assert "Traceback" not in refused.out
    assert another.files() == before


@pytest.mark.thorough
def test_the_paper_is_rebuilt_from_published_data(finished: Checkout) -> None:
    data = finished.root / "published/small"
    shutil.copytree(finished.results, data, ignore=shutil.ignore_patterns(".sharebench", "tables", "figures", "logs"))
    result = finished.run("paper", study="cpu.yaml").ok()
    assert result.jobs.pop("paper") == {""}
    assert set(result.jobs) == {"paper_data_sets"}, "no cell of the study at hand is measured"
    made = finished.results / "paper/small"
    names = names_for(cast(StudyConfig, {"interference": [], "faults": [], "workloads": []}), "simulated")
    assert {path.name for path in (made / "figures").iterdir()} == {f"{name}.svg" for name in names}
    strategies = {row["strategy"] for row in rows(made / "tables/summary.csv")}
    assert strategies == {"exclusive", "time-slicing", "mps", "mig"}
    for name in ("cells", "summary"):
        assert {row["label"] for row in rows(made / f"tables/{name}.csv")} == {"simulated"}
    assert finished.run("paper", study="cpu.yaml").ok().jobs.keys() <= {"paper"}
    assert "A100" in (made / "report.html").read_text()


def contents(folder: Path) -> dict[str, bytes]:
    """Of every file in the folder, by its path there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_study_is_published_and_another_checkout_reads_it(finished: Checkout, another: Checkout) -> None:
    assert finished.run("published/device/study").ok().jobs == {"publish": {""}}
    assert finished.run("published/device/study").ok().jobs == {}, "once is enough"

    there = contents(finished.root / "published/device/study")
    for name in ("tables/cells.csv", "tables/summary.csv"):
        assert there[name] == (finished.results / name).read_bytes()
    sibling = finished.root / "published/device/gpu/nodes/device.json"
    sibling.parent.mkdir(parents=True)
    device = json.loads((finished.results / "nodes/device.json").read_text())
    device["node"] |= {"product": "A GPU", "label": "", "kind": "nvidia"}
    sibling.write_text(json.dumps(device))
    refused = finished.run("published/device/study", options=["--forcerun", "publish"])
    assert refused.code == 1 and "publish it under another name" in refused.out
    assert contents(finished.root / "published/device/study") == there, "what cannot be replaced stays"
    shutil.rmtree(sibling.parents[1])

    link = finished.root / "published/device/link"
    link.symlink_to(finished.root / "tmp")
    refused = finished.run("published/device/link")
    assert refused.code == 1 and "published/device/link is a symbolic link" in refused.out
    assert "Traceback" not in refused.out
    link.unlink()

    shutil.copytree(finished.root / "published", another.root / "published")
    how: dict[str, Any] = {"study": "cpu.yaml", "config": ["from=published/device/study"]}
    assert another.run(**how).ok().jobs == table_jobs(set())
    made = another.root / "results/from/study"
    for name in ("tables/cells.csv", "tables/summary.csv"):
        assert (made / name).read_bytes() == there[name]

    record = another.root / "published/device/study/cells/mps/alpha/n2/r1/raw.json"
    record.write_text(record.read_text().replace("1", "2", 1))
    refused = another.run(**how)
    assert refused.code == 1 and refused.jobs == {}
    (line,) = [line for line in refused.out.splitlines() if "config:" in line]
    assert line.endswith("cells/mps/alpha/n2/r1/raw.json is not what was published; get the data set again")
