"""The durations in the comments of ready-made configs are those that `sharebench plan` prints."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.studies import study_with

from sharebench.measure.run import plan
from sharebench.model import capabilities
from sharebench.model.config import nodes, programs

FOLDER = Path(__file__).parents[3] / "config"
STUDIES = sorted(
    path.name for path in FOLDER.glob("*.yaml") if "results" in yaml.safe_load(path.read_text(encoding="utf-8"))
)
SECONDS = {"h": 3600, "min": 60, "s": 1}
# `On one GPU it takes about 7 h 40 min`
CLAIM = re.compile(r"[Oo]n (one GPU|two idle cores) it takes about ((?:\d+ (?:h|min|s)\b ?)+)")
TOLERANCE = 0.2


def seconds(text: str) -> int:
    """Seconds of a text such as `7 h 40 min`."""
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+) (h|min|s)\b", text))


def claims(name: str) -> Iterator[tuple[str, int]]:
    """The host and the seconds in the comment at the head of a study."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    for where, time in CLAIM.findall(" ".join(line.lstrip("# ") for line in head)):
        yield where, seconds(time)


def planned(given: dict[str, Any]) -> int:
    """Seconds in the first line of the plan of an unmeasured study."""
    catalogues = ("workload_catalogue", "strategy_catalogue")
    own = {f"{key}.{name}": entry for key in catalogues for name, entry in given.pop(key, {}).items()}
    study = study_with(given | own | ({"allow_faults": True} if given.get("faults") else {}))
    calibrations = {"calibrate": len({cell.workload for cell in study.cells})}
    return seconds(plan.headline(study, {}, study.cells, calibrations).rpartition("about ")[2])


@pytest.mark.parametrize("name", STUDIES)
def test_the_duration_in_a_config_is_that_of_the_plan(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    durations, given = dict(claims(name)), yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    kind = given.get("node", "auto")
    wanted = {"auto": {"one GPU", "two idle cores"}, "nvidia": {"one GPU"}, "kubernetes": {"one GPU"}}
    assert set(durations) == wanted.get(kind, {"two idle cores"})
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path / "nvidia0")
    monkeypatch.setattr(nodes, "gpu_python", lambda _: tmp_path / "nvidia0")
    # Their users make these environments.
    monkeypatch.setattr(programs, "file_problems", lambda *_: ())
    for where, named in durations.items():
        node = kind if kind != "auto" else {"one GPU": "nvidia", "two idle cores": "cpu"}[where]
        assert named == pytest.approx(planned(given | {"node": node}), rel=TOLERANCE), where


def test_the_gpu_study_has_the_workloads_of_the_first_table() -> None:
    """The table shows a published study, which has the same workloads."""
    published = yaml.safe_load((FOLDER.parent / "published/h200/inference/config.yaml").read_text(encoding="utf-8"))
    ours = yaml.safe_load((FOLDER / "gpu.yaml").read_text(encoding="utf-8"))
    assert set(ours["workloads"]) == set(published["workloads"])
    assert set(ours["strategies"]) >= set(published["strategies"])


@pytest.mark.parametrize("name", STUDIES)
def test_no_answer_of_a_server_is_held_to_the_latency_of_a_small_service(name: str) -> None:
    given = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    streams = [key for key, entry in given.get("workload_catalogue", {}).items() if entry.get("stream")]
    slo = given.get("slo", {})
    asked = [slo.get("workloads", {}).get(key, slo) for key in streams]
    assert not any("latency_ms" in each for each in asked), f"{streams} write many tokens in one answer"
