"""Rules of CONTRIBUTING.md on files that no linter checks."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
MAX_LINES = 400


def test_no_source_file_is_too_long() -> None:
    assert f"no source file over {MAX_LINES} lines" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    folders = [ROOT / name for name in ("scripts", "tests", "benchmarks", "docs", "examples")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    lines = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in files}
    assert len(lines) > 300
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
