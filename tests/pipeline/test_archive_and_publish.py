"""Results leave a checkout as an archive or a published data set; another checkout verifies and rebuilds them."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
from pipeline.harness import Checkout, table_jobs
from tables import rows

from sharebench.model.study_config import StudyConfig
from sharebench.read.figures.catalogue import names_for


def test_another_checkout_verifies_an_archive_and_rebuilds_from_it(
    finished: Checkout, second_checkout: Checkout
) -> None:
    assert finished.run("archive").ok().jobs == {"archive": {""}}
    assert finished.run("archive").ok().jobs == {}, "once is enough"
    archive = second_checkout.root / "tmp/received.zip"
    shutil.copy(finished.results / "archive.zip", archive)
    options: dict[str, Any] = {"study": "cpu.yaml", "config": [f"from={archive}"]}
    assert second_checkout.run(**options).ok().jobs == table_jobs(set())
    rebuilt = second_checkout.root / "results/from/received"
    assert (rebuilt / "tables/summary.csv").read_bytes() == (finished.results / "tables/summary.csv").read_bytes()
    assert second_checkout.run(**options).ok().jobs == {}, "an archive is not unpacked twice"

    content = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as packed:
        entry = packed.getinfo("cells/mps/alpha/n2/r1/raw.json")
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0x10
    (second_checkout.root / "tmp/changed.zip").write_bytes(content)
    before = second_checkout.files()
    refused = second_checkout.run(config=[f"from={second_checkout.root}/tmp/changed.zip"])
    assert refused.code == 1 and refused.jobs == {}
    (line,) = [line for line in refused.out.splitlines() if "config:" in line]
    assert line.endswith("changed.zip: cells/mps/alpha/n2/r1/raw.json is not what was archived; get the archive again")
    assert "Traceback" not in refused.out
    assert second_checkout.files() == before


@pytest.mark.thorough
def test_the_paper_is_rebuilt_from_published_data(finished: Checkout) -> None:
    data = finished.root / "published/small"
    shutil.copytree(finished.results, data, ignore=shutil.ignore_patterns(".sharebench", "tables", "figures", "logs"))
    result = finished.run("paper", study="cpu.yaml").ok()
    assert result.jobs.pop("paper") == {""}
    assert set(result.jobs) == {"paper_data_sets"}, "no cell of the study at hand is measured"
    rebuilt = finished.results / "paper/small"
    names = names_for(cast(StudyConfig, {"interference": [], "faults": [], "workloads": []}), "simulated")
    assert {path.name for path in (rebuilt / "figures").iterdir()} == {f"{name}.svg" for name in names}
    strategies = {row["strategy"] for row in rows(rebuilt / "tables/summary.csv")}
    assert strategies == {"exclusive", "time-slicing", "mps", "mig"}
    for name in ("cells", "summary"):
        assert {row["label"] for row in rows(rebuilt / f"tables/{name}.csv")} == {"simulated"}
    assert finished.run("paper", study="cpu.yaml").ok().jobs.keys() <= {"paper"}
    assert "A100" in (rebuilt / "report.html").read_text()


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file in the folder, by its path in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_study_is_published_and_another_checkout_reads_it(finished: Checkout, second_checkout: Checkout) -> None:
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
    assert contents(finished.root / "published/device/study") == there, "a refusal changes nothing"
    shutil.rmtree(sibling.parents[1])

    link = finished.root / "published/device/link"
    link.symlink_to(finished.root / "tmp")
    refused = finished.run("published/device/link")
    assert refused.code == 1 and "published/device/link is a symbolic link" in refused.out
    assert "Traceback" not in refused.out
    link.unlink()

    shutil.copytree(finished.root / "published", second_checkout.root / "published")
    options: dict[str, Any] = {"study": "cpu.yaml", "config": ["from=published/device/study"]}
    assert second_checkout.run(**options).ok().jobs == table_jobs(set())
    rebuilt = second_checkout.root / "results/from/study"
    for name in ("tables/cells.csv", "tables/summary.csv"):
        assert (rebuilt / name).read_bytes() == there[name]

    table = second_checkout.root / "published/device/study/tables/cells.csv"
    table.write_text(table.read_text().replace("1", "2", 1))
    refused = second_checkout.run(**options)
    assert refused.code == 1 and refused.jobs == {}
    (line,) = [line for line in refused.out.splitlines() if "config:" in line]
    assert line.endswith("tables/cells.csv is not what was published; get the data set again")


def test_snakemakes_own_report_has_ours(finished: Checkout) -> None:
    finished.run(options=["--report", "results/of-snakemake.html"]).ok()
    text = (finished.root / "results/of-snakemake.html").read_text(encoding="utf-8")
    assert "report.html" in text and "throughput.svg" in text
