"""What the report's context is made of: matrix and images, of bounded size."""

from pathlib import Path
from typing import Any

import pytest
from unit.figures import fabricated

from sharebench.report import page
from sharebench.report.images import images
from sharebench.report.sections import matrix as report_matrix

NAN = float("nan")


def row(strategy: str, replicas: int, slowdown: float, **changes: Any) -> dict[str, Any]:
    """A row of the summary, as far as the parts read it."""
    base = {"strategy": strategy, "workload": "w", "tenant_workload": "w", "replicas": replicas, "n": 3}
    return base | {"status": "ok", "slowdown": slowdown, "latency_mean_seconds": 0.01 * slowdown} | changes


def test_the_slower_the_more_colour_and_gaps_stay_gaps() -> None:
    rows = [row("exclusive", 1, 1.0), row("mps", 1, 0.9), row("mps", 2, 2.0), row("mps", 4, 4.0)]
    rows += [row("mig", 2, NAN, n=0, status="infeasible"), row("mig", 4, NAN, latency_mean_seconds=0.02)]
    (matrix,) = report_matrix.matrices({"w": rows})
    assert matrix.columns == [1, 2, 4]
    fields = dict(matrix.rows)
    shades = [field.shade_percent for field in fields["mps"] if field]
    assert shades == pytest.approx([0, 22.5, 45]), "the slowest has the most, and each doubling adds as much"
    assert [field and field.text for field in fields["exclusive"]] == ["1.00", None, None]
    assert [field and field.text for field in fields["mig"]] == [None, "infeasible", "20 ms"]


def test_pairs_have_no_matrix_and_a_mix_one_for_each_workload_in_it() -> None:
    mixed = [row("mps", 2, 1.5, workload="mix", tenant_workload=name) for name in ("a", "b")]
    found = report_matrix.matrices({"a+b": [row("mps", 2, 1.5, workload="a+b")], "mix": mixed})
    assert len(found) == 2 and all("mix" in matrix.title for matrix in found)


def test_pairs_have_a_matrix_for_each_strategy_with_both_of_a_pair() -> None:
    pair = [row("mps", 2, slow, workload="a+b", tenant_workload=name) for name, slow in (("a", 8.0), ("b", 1.1))]
    like = [row(name, 2, 2.0, workload="a+a", tenant_workload="a") for name in ("mps", "mig")]
    found = report_matrix.pair_matrices({"a": [row("exclusive", 1, 1.0)], "a+b": pair, "a+a": like})
    texts = {
        matrix.title: {victim: [field and field.text for field in fields] for victim, fields in matrix.rows}
        for matrix in found
    }
    assert texts == {
        "mps": {"a": ["2.00", "8.00"], "b": ["1.10", None]},
        "mig": {"a": ["2.00", None], "b": [None, None]},
    }
    assert all(matrix.columns == ["a", "b"] for matrix in found)


def test_what_only_served_as_a_baseline_is_no_finding() -> None:
    alone = [row(name, 1, 1.0) for name in ("exclusive", "exclusive-again")]
    pair = [row("mps", 2, 1.5, workload="a+b", tenant_workload="a")]
    assert page.compared({"a": alone, "a+b": pair}, "exclusive") == {"a+b": pair}
    assert page.compared({"a": [*alone, row("mps", 1, 1.0)]}, "exclusive").keys() == {"a"}
    assert page.compared({"a": alone}, "exclusive") == {"a": alone}, "or there would be nothing"


def test_long_tables_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fabricated.write(tmp_path / "results")
    monkeypatch.setattr(page, "MOST_ROWS", 6)
    monkeypatch.setattr(page, "LEAST_ROWS", 1)
    page.write(root, root)
    text = (root / "report.html").read_text(encoding="utf-8")
    assert "The first 3 of 10 rows; tables/summary.csv has all." in text


def test_figures_that_are_too_large_together_are_png_or_left_out(tmp_path: Path) -> None:
    svg = '<svg width="100pt"><dc:description>said</dc:description>{}</svg>'
    for name, size in (("small", 10), ("large", 1000), ("huge", 3000)):
        (tmp_path / f"{name}.svg").write_text(svg.format("x" * size))
    (tmp_path / "large.png").write_bytes(b"p" * 100)
    (tmp_path / "huge.png").write_bytes(b"p" * 2000)
    names = ["small", "large", "huge", "missing"]

    def kinds(budget_bytes: int) -> list[str | None]:
        found = images(tmp_path, names, budget_bytes)
        return [image and image.uri.split(";")[0].removeprefix("data:image/") for image in found.values()]

    assert kinds(10_000) == ["svg+xml", "svg+xml", "svg+xml", None]
    assert kinds(3_500) == ["svg+xml", "svg+xml", "png", None]
    assert kinds(1_500) == ["svg+xml", "svg+xml", None, None]
    assert kinds(300) == ["svg+xml", "png", None, None]
    assert images(tmp_path, names, 3_200, first=["huge"])["huge"], "what matters most is given up last"
    image = images(tmp_path, ["large"], 300)["large"]
    assert image and (image.words, image.width_pixels) == ("said", 190), "as the svg says"
