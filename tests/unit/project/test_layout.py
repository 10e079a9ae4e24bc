"""What CONTRIBUTING.md says of files, as far as no linter holds it."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST_LINES = 400


def test_no_source_file_is_long() -> None:
    assert f"no source file over {MOST_LINES} lines" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    files = [
        path for room in ("scripts", "tests", "benchmarks", "docs", "examples") for path in (ROOT / room).rglob("*.py")
    ]
    lines = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in files}
    assert len(lines) > 300
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
