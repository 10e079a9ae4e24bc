"""What the report's context is made of: tables and images, of bounded size."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.figures import fabricated

from sharebench.figures.style import COLORS
from sharebench.report import page

NAN = float("nan")


def row(strategy: str, replicas: int, slowdown: float, **changes: Any) -> dict[str, Any]:
    """A row of the summary, as far as the parts read it."""
    base = {"strategy": strategy, "workload": "w", "tenant_workload": "w", "replicas": replicas, "n": 3}
    return base | {"status": "ok", "slowdown": slowdown, "latency_mean_seconds": 0.01 * slowdown} | changes


def test_what_only_served_as_a_baseline_is_no_finding() -> None:
    alone = [row(name, 1, 1.0) for name in ("exclusive", "exclusive-again")]
    pair = [row("mps", 2, 1.5, workload="a+b", tenant_workload="a")]
    assert page.compared({"a": alone, "a+b": pair}, "exclusive") == {"a+b": pair}
    assert page.compared({"a": [*alone, row("mps", 1, 1.0)]}, "exclusive").keys() == {"a"}
    assert page.compared({"a": alone}, "exclusive") == {"a": alone}, "or there would be nothing"


def test_strategies_beyond_the_colours_have_another_shape(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path / "results")
    manifest = json.loads((root / "manifest.json").read_text())
    known = manifest["config"]["strategy_catalogue"]
    manifest["config"]["strategy_catalogue"] = known | {f"mps-{n}": known["mps"] for n in range(len(COLORS))}
    (root / "manifest.json").write_text(json.dumps(manifest))
    found = page.context(root, root)
    (again,) = (each for each in found["colors"] if found["colors"][each] == found["colors"]["mps"] and each != "mps")
    assert again in found["squares"] and "mps" not in found["squares"]


def test_long_tables_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fabricated.write(tmp_path / "results")
    monkeypatch.setattr(page, "MOST_ROWS", 6)
    monkeypatch.setattr(page, "LEAST_ROWS", 1)
    page.write(root, root)
    text = (root / "report.html").read_text(encoding="utf-8")
    assert "The first 3 of 10 rows; tables/summary.csv has all." in text
