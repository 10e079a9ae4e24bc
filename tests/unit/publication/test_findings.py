"""Findings and documents: their numbers come from the tables, and a sentence that the data contradict is refused."""

import math
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jinja2.meta
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from unit.edited import edited_table
from unit.papers import H200, data_set, publish

from publication import build, cross_checks, documents, findings, rebuild, tables
from publication.cross_checks import PublishedRatio
from publication.findings import Contradicted, Filler, Source
from publication.numbers import DataSet, Number
from sharebench.datasets import dataset

ROOT = Path(__file__).resolve().parents[3]


def group(strategy: str) -> dict[str, Any]:
    return findings.group(strategy, "net", 2)


def filler(root: Path, **data: str) -> Filler:
    named = data or {"study": "gpu/study"}
    return Filler(source(data=named), root / "published", root / "made")


def source(data: dict[str, str], **blocks: str) -> Source:
    # The first data set that is published counts.
    published = {key: ["gpu/none", name] for key, name in data.items()}
    return Source(introduction="", data=published, names={"net": "net"}, findings=[], blocks=blocks)


def finding(**changes: Any) -> dict[str, Any]:
    """An entry of docs/findings.yaml that the data of `publish` support."""
    return {
        "name": "turns",
        "question": "Are turns slower?",
        "data": ["study"],
        "let": {"gain": "study.ratio(group('time-slicing', net, 2), group('mps', net, 2))"},
        "number": "{{ gain }}",
        "holds": ["gain.least > 1.5"],
        "sentence": "Turns take {{ gain.formatted(' times') }} as long.",
        "figure": {"draw": "latency", "of": "study"},
        "caveat": "One workload.",
        "attacks": [
            {
                "rival": "The clocks.",
                "cells": "`mps`",
                "holds": ["gain.value < 9"],
                "ruled_out": "They are {{ gain.point }}.",
            },
            {"rival": "The host.", "stands": "It was one host."},
        ],
    } | changes


def test_a_finding_that_the_data_support_is_written(tmp_path: Path) -> None:
    publish(tmp_path)
    texts = filler(tmp_path)
    found = texts.fill_finding(finding())
    page = findings.findings_page([found], texts, "Introduction.")
    assert "**Turns take 2.00 times (1.8" in page or "**Turns take 2.00" in page
    assert "[gpu/study](../published/gpu/README.md)" in page and "images/findings/turns.svg" in page
    assert "measured once" not in page


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"holds": ["gain.least > 3"]}, r"turns: the data contradict it: not gain.least > 3, gain is 2\.0"),
        ({"holds": []}, "turns: holds: List should have at least 1 item"),
        ({"holds": ["gain.smallest > 1"]}, "smallest"),
        ({"let": {"gain": "study.ratio(group('mig', net, 2), group('mps', net, 2))"}}, "no valid cell with strategy"),
        ({"let": {"gain": "study.value('slowness', strategy='mps')"}}, "has no column slowness"),
        (
            {"let": {"gain": "study.value('slowdown', replicas=2)"}},
            "3 rows of tables/summary.csv of gpu/study have replicas 2; name one",
        ),
        ({"let": {"gain": "study.slice_ms()"}}, "has no nodes/timeslice.json"),
        ({"sentence": "Turns take {{ gain }}. And more."}, "is not one sentence"),
        ({"sentence": "Turns take {{ gian }} as long."}, "gian"),
        ({"because": "of this"}, "because is an unknown key"),
    ],
)
def test_a_malformed_or_contradicted_finding_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    publish(tmp_path)
    with pytest.raises(Contradicted, match=words):
        filler(tmp_path).fill_finding(finding(**changes))


def test_a_finding_needs_attacks_with_their_answers(tmp_path: Path) -> None:
    publish(tmp_path)
    texts, entry = filler(tmp_path), finding()
    page = findings.findings_page([texts.fill_finding(entry)], texts, "")
    assert "- *The clocks.* No (`mps`): They are 2.00.\n- *The host.* **Not ruled out:** It was one host." in page
    rival = dict(entry["attacks"][0])
    for attacks, words in (
        ([], "turns: attacks: List should have at least 1 item"),
        ([rival | {"holds": ["gain.value > 9"]}], "turns: attacks: the data contradict it: not gain.value > 9"),
        ([{"rival": "The clocks.", "ruled_out": "No."}], "turns: attacks: has rival, ruled_out; give cells, holds"),
    ):
        with pytest.raises(Contradicted, match=words):
            texts.fill_finding(entry | {"attacks": attacks})
    del entry["attacks"]
    with pytest.raises(Contradicted, match="turns: has no attacks"):
        texts.fill_finding(entry)


def test_a_block_may_have_claims(tmp_path: Path) -> None:
    publish(tmp_path)
    let = {"gain": finding()["let"]["gain"]}
    texts = filler(tmp_path)
    block = {"let": let, "holds": ["gain.value > 1"], "text": "{{ gain.point }} times"}
    assert texts.fill_block("b", block) == "2.00 times"
    with pytest.raises(Contradicted, match=r"block b: the data contradict it: not gain\.value > 3"):
        texts.fill_block("b", {"let": let, "holds": ["gain.value > 3"], "text": ""})
    with pytest.raises(Contradicted, match="block b: has no holds"):
        texts.fill_block("b", {"let": let, "text": ""})


def test_a_question_that_the_data_set_cannot_answer_stays_open(tmp_path: Path) -> None:
    publish(tmp_path, devices="abc")
    texts = filler(tmp_path)
    assert texts.fill_finding(finding(when="study.device_count == 2")).is_open
    assert not texts.fill_finding(finding(when="study.device_count == 3")).is_open


def test_a_finding_without_published_data_is_an_open_question(tmp_path: Path) -> None:
    publish(tmp_path)
    texts = filler(tmp_path, study="gpu/study", later="gpu/later")
    open_one = texts.fill_finding(finding(name="later", data=["later"], question="And later?"))
    page = findings.findings_page([texts.fill_finding(finding()), open_one], texts, "")
    assert page.endswith("## Not measured yet\n\n- And later?\n")


@pytest.mark.parametrize(
    "device",
    [
        H200 | {"label": "CPU stand-in, not a GPU", "kind": "cpu", "is_gpu": False},
        H200 | {"label": "simulated", "kind": "simulated"},
        H200 | {"label": "mock GPU, CPU work in pods", "kind": "kubernetes"},
    ],
)
def test_only_measurements_of_gpus_get_into_findings(tmp_path: Path, device: dict[str, Any]) -> None:
    publish(tmp_path, device=device)
    with pytest.raises(Contradicted, match="gpu/study was not measured on a GPU"):
        filler(tmp_path)


@pytest.mark.parametrize(
    "theirs, ours, verdict",
    [
        (2.0, Number(2.1, 1.9, 2.3), "agrees: within our interval"),
        (2.0, Number(2.1, 0.5, 8.4), "undecided between theirs and 1: 1.05 × theirs"),
        (1.0, Number(1.1, 0.9, 1.3), "agrees: within our interval"),
        (2.0, Number(3.0, 2.9, 3.1), "disagrees in size, same direction: 1.50 × theirs"),
        (2.0, Number(0.5, 0.4, 0.6), "disagrees in size, opposite direction: 0.250 × theirs"),
        (2.0, Number(1.0, 0.9, 1.1), "disagrees: 0.500 × theirs, and not different from 1"),
        (2.0, Number(3.0), "undecided without an interval, same direction: 1.50 × theirs"),
        (1.0, Number(0.9, 0.8, 0.95), "disagrees in size: 0.900 × theirs"),
        (2.0, Number(1.0012), "undecided without an interval: 0.501 × theirs"),
        (2.0, Number(1.0007, 1.0003, 1.0011), "disagrees in size, same direction: 0.500 × theirs"),
        (2.0, Number(1012.0), "undecided without an interval, same direction: 506 × theirs"),
        (2.0, None, "not measured yet"),
    ],
)
def test_the_verdict_depends_on_our_interval(theirs: float, ours: Number | None, verdict: str) -> None:
    assert PublishedRatio("what", "who", theirs, ours, "").verdict == verdict


def test_the_verdict_allows_for_the_reading_error() -> None:
    ours = Number(2.1, 2.05, 2.15)
    assert PublishedRatio("what", "who", 2.0, ours, "").verdict.startswith("disagrees in size")
    rough = PublishedRatio("what", "who", 2.0, ours, "", reading_percent=25)
    assert rough.verdict == "agrees within its reading error: 1.05 × theirs"
    assert rough.theirs_range == (1.6, 2.5)
    assert PublishedRatio("what", "who", 2.0, Number(3.0, 2.9, 3.1), "", 25).verdict.startswith("disagrees in size")


def test_a_published_number_is_read_exactly() -> None:
    literature = partial(cross_checks.literature_value, ROOT / "published/literature.csv")
    nos = ("nos gpu-sharing-comparison", "YOLOS-small inference")
    assert literature(*nos, "mps", 7, "mean latency") == 0.3198182253208076
    with pytest.raises(KeyError, match="0 rows"):
        literature(*nos, "mps", 8, "mean latency")


def test_blocks_are_filled_and_the_rest_is_kept(tmp_path: Path) -> None:
    publish(tmp_path)
    text = "# Title\n<!-- by rule: facts -->\nold\n<!-- end of rule -->\nby hand\n"
    (tmp_path / "published/gpu/README.md").write_text(text)
    (tmp_path / "README.md").write_text("<!-- by rule: number -->\n<!-- end of rule -->\n")
    texts, datasets = filler(tmp_path), {"gpu/study": data_set(tmp_path)}
    found = list(documents.documents_with_blocks(tmp_path))
    assert found == [Path("README.md"), Path("published/gpu/README.md")]
    nothing = source(data={})
    facts = build.fill_blocks(found[1], tmp_path, texts, nothing, datasets)
    assert facts.startswith("# Title\n") and facts.endswith("<!-- end of rule -->\nby hand\n") and "old" not in facts
    assert "| study | 9 | 9 | 3 | 5 s | a | 580 | 2026-11-20 |" in facts
    blocks = source(data={}, number="{{ study.value('slowdown', strategy='mps') }}")
    assert "2.00 (1.90 to 2.10)" in build.fill_blocks(found[0], tmp_path, texts, blocks, datasets)
    with pytest.raises(Contradicted, match=r"README.md: there is no block number; known are facts"):
        build.fill_blocks(found[0], tmp_path, texts, nothing, datasets)


def test_a_measurement_is_described_by_device_repeats_and_windows(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(tmp_path, "gpu/more", devices="ab")
    text = tables.describe_measurement(data_set(tmp_path), "..")
    assert text == "NVIDIA H200, every cell 3 times, windows of 5 s: [gpu/study](../published/gpu/README.md)"
    assert "NVIDIA H200, 2 devices, every cell" in tables.describe_measurement(data_set(tmp_path, "gpu/more"), "")
    with edited_table(tmp_path / "made/gpu/study/tables/cells.csv") as table:
        table.loc[len(table)] = table.iloc[0].to_dict() | {"workload": "another"}
    assert "NVIDIA H200, cells 1 to 3 times, windows" in tables.describe_measurement(data_set(tmp_path), "..")


@pytest.mark.thorough
def test_the_documents_of_this_checkout_agree_with_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in dataset.list_published(ROOT / "published"):
        rebuild.write_tables(*dataset.open_complete(ROOT / "published" / name), tmp_path / name)
    wanted = build.build_documents(ROOT, tmp_path).files
    assert {Path("README.md"), findings.PAGE_FILE} <= wanted.keys()
    differ = [str(path) for path, text in wanted.items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert differ == [], "rewrite them: make findings"


def test_every_image_of_the_findings_is_there_and_used() -> None:
    page = (ROOT / findings.PAGE_FILE).read_text(encoding="utf-8")
    there = {path.name for path in (ROOT / findings.IMAGE_FOLDER).iterdir()}
    used = {part.split(")")[0] for part in page.split("images/findings/")[1:]}
    assert there == used


def test_documents_that_differ_are_named_and_rewritten(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for name, text in {"README.md": "new", "docs/images/findings/one.svg": "<svg>"}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/documents.py", root / "scripts")
    (root / "README.md").write_text("old")
    (root / "docs/images/findings").mkdir(parents=True)
    (root / "docs/images/findings/gone.svg").write_text("<svg>")

    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, str(root / "scripts/documents.py"), str(made), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, output = run()
    assert code == 1 and output.endswith("rewrite them: make findings\n")
    assert "README.md, docs/images/findings/one.svg, docs/images/findings/gone.svg" in output
    assert run("--write")[0] == 0
    assert (root / "README.md").read_text() == "new" and not (root / "docs/images/findings/gone.svg").exists()
    assert run() == (0, "all documents agree with the data\n")


def test_a_finding_without_a_figure_of_its_study_draws_its_own_numbers(tmp_path: Path) -> None:
    publish(tmp_path)
    texts = filler(tmp_path)
    figure = {"draw": "numbers", "of": "study", "title": "T", "axis": "x", "labels": {"gain": "turns over MPS"}}
    found = texts.fill_finding(finding(figure=figure))
    build.draw_numbers(found, texts, tmp_path / "turns")
    svg = (tmp_path / "turns.svg").read_text(encoding="utf-8")
    assert "turns over MPS: 2" in svg and "NVIDIA H200" in svg
    assert "measured once" not in svg, "bars may be hidden by their marks"


def test_the_published_ratios_name_the_devices_of_their_rows_only() -> None:
    pairs = [
        PublishedRatio("one", "who", 2.0, Number(2.1), "", products=("NVIDIA H200",)),
        PublishedRatio("two", "who", 2.0, None, "", products=("NVIDIA H100",)),
    ]
    page = cross_checks.draw_ratios(pairs)
    texts = [text.get_text() for text in page.figure.texts]
    assert any("ours: NVIDIA H200" in text for text in texts) and not any("H100" in text for text in texts), texts
    assert not any("measured once" in text for text in texts), "bars may be hidden by their marks"


def baselines_on(tmp_path: Path, one: str, two: str) -> dict[str, DataSet]:
    """Two studies of one tenant alone: 1.17, 1.235 and 1.3 s, each on the next of these devices."""
    publish(tmp_path, "gpu/one", devices=one)
    publish(tmp_path, "gpu/two", devices=two)
    datasets = {name: data_set(tmp_path, name) for name in ("gpu/one", "gpu/two")}
    for name, data in datasets.items():
        path = tmp_path / "made" / name / "tables/cells.csv"
        cells = pd.read_csv(path)
        alone = cells[(cells["strategy"] == "exclusive") & (cells["tenant"] == 0)]
        alone.assign(replicas=1).to_csv(path, index=False)
        data.manifest["config"] |= {"baseline": "exclusive", "workload_catalogue": {"net": {"load": CLOSED}}}
    return datasets


def test_baselines_on_several_devices_are_compared(tmp_path: Path) -> None:
    datasets = baselines_on(tmp_path, "aab", "b")
    means = [stats.gmean(own) for own in ([1.17, 1.235], [1.3, 1.17, 1.235, 1.3])]
    between = 100 * float(pd.Series([math.log(mean) for mean in means]).std())
    (line,) = tables.devices_table(datasets).splitlines()[2:]
    assert line.startswith("| `net` | 2 | 6 | ") and f"| {between:.2f} % |" in line
    assert line.endswith(" |  |  |  |  |"), "no host is known"
    assert tables.devices_table({"gpu/two": datasets["gpu/two"]}) == tables.markdown([])


def test_hosts_that_are_known_are_compared(tmp_path: Path) -> None:
    datasets = baselines_on(tmp_path, "abc", "d")
    (tmp_path / "published/gpu/hosts.csv").write_text("device,host\na,X\nb,X\nc,Y\nd,Y\n")
    hosts = np.log([1.17, 1.235]), np.log([1.3, stats.gmean([1.17, 1.235, 1.3])])
    between, within = (
        100 * np.std([own.mean() for own in hosts], ddof=1),
        100 * math.sqrt(np.mean([own.var(ddof=1) for own in hosts])),
    )
    (line,) = tables.devices_table(datasets).splitlines()[2:]
    assert line.endswith(f"| 2 | {between:.2f} % | {within:.2f} % | {stats.f_oneway(*hosts).pvalue:.2g} |")


CLOSED = {"arrival": "closed"}
TYPED = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:[µnm]?s|%|times|×|[MG]Hz|GiB|MiB|W)(?!\w)")
# These are levels of intervals and tests, a share of the probe's runs, and the limit of the bare loop.
ALLOWED = {"95 %", "5 %", "90 %", "2 %"}


def typed_measures(text: str) -> set[str]:
    """Measures in a text that were typed instead of filled in."""
    return set(TYPED.findall(re.sub(r"\{\{.*?\}\}|\{%.*?%\}|`[^`]*`", "", text, flags=re.DOTALL))) - ALLOWED


def test_a_finding_names_the_data_sets_of_its_numbers_and_no_other() -> None:
    source = findings.read_source(ROOT)
    for entry in source.findings:
        found: set[str] = set()
        texts = [str(value) for name, value in entry.items() if name not in ("let", "data", "figure")]
        for text in [*texts, *(f"{{{{ {each} }}}}" for each in entry["let"].values())]:
            found |= jinja2.meta.find_undeclared_variables(jinja2.Environment().parse(text))
        assert (found & source.data.keys()) - entry["let"].keys() == {*entry["data"]}, entry["name"]


def test_no_measure_is_typed_into_a_text_that_is_filled_in() -> None:
    text = "It takes 12 µs, and {{ x }} ms, or 3.5 times; 7 tenants of 16384 x 16384, 95 % intervals"
    assert typed_measures(text) == {"12 µs", "3.5 times"}
    whole = findings.read_source(ROOT)
    texts = {"introduction": whole.introduction}
    for entry in whole.findings:
        own = [entry["question"], *(entry[key] for key in findings.TEXT_KEYS)]
        own += [text for attack in entry["attacks"] for key, text in attack.items() if key != "holds"]
        texts[entry["name"]] = " ".join(own)
    texts |= {name: block if isinstance(block, str) else block["text"] for name, block in whole.blocks.items()}
    assert {name: found for name, text in texts.items() if (found := typed_measures(text))} == {}


def test_no_measure_is_typed_into_a_document_about_the_data() -> None:
    pages = [f"docs/strategies/{name}.md" for name in ("mps", "streams")]
    for path in ("docs/neighbours.md", "published/h200/README.md", *pages):
        text = documents.BLOCK.sub("", (ROOT / path).read_text(encoding="utf-8"))
        assert typed_measures(text) == set(), path


def test_setup_that_all_studies_share_is_listed_once(tmp_path: Path) -> None:
    folder = tmp_path / "calibration"
    folder.mkdir()
    (folder / "net.json").write_text('{"provenance": {"python": "3.12.3", "packages": {"torch": "2.11.0"}}}')
    found = {
        name: SimpleNamespace(
            unpacked=tmp_path,
            device={"kind": "nvidia", "details": {"driver": "580", "mig_mode": mig}},
            manifest={"config": {}},
        )
        for name, mig in (("gpu/a", "off"), ("gpu/b", "on"))
    }
    common, *own = tables.setup_list(cast(Any, found)).splitlines()
    assert common == "- All: driver 580, CUDA None, compute mode None, Python 3.12.3, torch 2.11.0."
    assert own == ["- `a`: MIG mode off.", "- `b`: MIG mode on."]
