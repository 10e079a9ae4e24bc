"""`make release` sets version, date and address everywhere, or changes nothing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = (
    "pyproject.toml",
    "CHANGELOG.md",
    "CITATION.cff",
    "README.md",
    "docs/cluster/quickstart.md",
    "config/cluster/driver.yaml",
)
ADDRESS = re.search(r'^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words], cwd=root, capture_output=True, text=True, check=False)


def release(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(root, sys.executable, str(ROOT / "scripts/release.py"), "--root", str(root), *words)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "someone@example.org")
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changes = (tmp_path / "CHANGELOG.md").read_text()
    (tmp_path / "CHANGELOG.md").write_text(
        changes.replace("# Changelog\n", "# Changelog\n\n## 9.8.7 (unreleased)\n", 1)
    )
    run(tmp_path, "git", "init", "--quiet")
    run(tmp_path, "git", "add", "--all")
    assert run(tmp_path, "git", "commit", "--quiet", "--message", "all").returncode == 0
    return tmp_path


def test_the_address_is_the_same_in_all_files() -> None:
    assert ADDRESS
    for name in FILES[2:]:
        assert ADDRESS[1] in (ROOT / name).read_text(), name
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"] == ADDRESS[1]


def test_a_release_sets_version_date_address_and_tag(checkout: Path) -> None:
    made = release(checkout, "9.8.7", "--address", "https://example.com/bench")
    assert made.returncode == 0, made.stderr
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (citation["version"], citation["repository-code"]) == ("9.8.7", "https://example.com/bench")
    assert f"## 9.8.7 ({citation['date-released']})" in (checkout / "CHANGELOG.md").read_text()
    assert 'version = "9.8.7"' in (checkout / "pyproject.toml").read_text()
    assert "value: v9.8.7\n" in (checkout / "config/cluster/driver.yaml").read_text()
    assert "git clone https://example.com/bench.git && cd" in (checkout / "README.md").read_text()
    assert all("example.org/sharebench" not in (checkout / name).read_text() for name in FILES)
    assert run(checkout, "git", "tag", "--points-at", "HEAD").stdout == "v9.8.7\n"
    assert run(checkout, "git", "status", "--porcelain").stdout == ""
    assert "the tag v9.8.7 is there already" in release(checkout, "9.8.7").stderr


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("", "it is not of the form 1.0.0"),
        ("next", "it is not of the form 1.0.0"),
        ("9.9.9", "CHANGELOG.md: 0 lines match"),
    ],
)
def test_an_impossible_release_changes_nothing(version: str, line: str, checkout: Path) -> None:
    refused = release(checkout, version)
    assert refused.returncode == 1 and line in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert run(checkout, "git", "status", "--porcelain").stdout == run(checkout, "git", "tag").stdout == ""


@pytest.mark.parametrize("hook", ["pre-commit", "reference-transaction"])
def test_a_release_that_git_refuses_changes_nothing(hook: str, checkout: Path) -> None:
    script = checkout / ".git/hooks" / hook
    script.parent.mkdir(exist_ok=True)
    # The second one refuses the tag only.
    script.write_text("#!/bin/sh\n[ $# = 1 ] && ! grep -q refs/tags && exit 0\necho not today >&2\nexit 1\n")
    script.chmod(0o755)
    before = run(checkout, "git", "rev-parse", "HEAD").stdout
    refused = release(checkout, "9.8.7")
    assert refused.returncode == 1 and "nothing was changed: " in refused.stderr and "not today" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run(checkout, "git", "status", "--porcelain").stdout == run(checkout, "git", "tag").stdout == ""
    assert run(checkout, "git", "rev-parse", "HEAD").stdout == before


def test_changes_are_not_released_by_the_way(checkout: Path) -> None:
    (checkout / "README.md").write_text("other")
    assert "the checkout has changes" in release(checkout, "9.8.7").stderr


def test_a_changelog_has_the_next_release_and_how_to_get_there() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version and f"## {version[1]} (" in text and "### From 0.1 to 1.0" in text


def test_the_workflow_of_ci_is_what_ci_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert any(".ci/run" in step.get("run", "") for job in jobs.values() for step in job["steps"])
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 2 and all(
        {"name", "description", "body"} <= yaml.safe_load(each.read_text()).keys() for each in forms
    )
    asked = (ROOT / ".github/pull_request_template.md").read_text()
    assert all(f"**{each}" in asked for each in ("What", "Why", "Tests", "Fingerprints"))


def test_the_catalogue_of_workflows_finds_this_one() -> None:
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme and "workflow" in readme
    assert (ROOT / "Snakefile").is_file() and list((ROOT / "rules").glob("*.smk"))
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert "make run" in usage["mandatory-flags"]["desc"] and usage["report"]
