"""The command `sharebench`: its index, its errors, and its answers without Snakemake."""

import csv
import json
import os
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from sharebench import cli
from sharebench.core.files import Refusal
from sharebench.read.promises import COLUMNS, read_promises

ROOT = Path(__file__).parents[3]
DATA = ROOT / "published/h200/even"
LAST_COUNTS = "is there 2 times, and Snakemake takes only the last; write one:"
COMMANDS = ("plan", "advise", "preflight", "survey", "compare", "join", "restore", "conformance")


def run(*words: str) -> int | str | None:
    """Run the command; returns its exit status, or the line that it ends with."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return ended.value.code


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert not run("--version")
    assert capsys.readouterr().out == f"sharebench {version('sharebench')}\n"


def test_every_target_of_version_0_1_that_asked_is_a_command() -> None:
    """`rules/internals.smk` answers a target that is a command with what to type."""
    assert {"plan", "advise", "preflight", "survey", "compare", "join", "restore"} <= set(cli.commands.commands)


@pytest.mark.parametrize(
    "words",
    [
        "--configfile {0} {1} --config repeats=1 seed=2",
        "--config=repeats=1 seed=2 --configfile={0} {1}",
    ],
)
def test_an_option_for_a_config_takes_several_values_as_snakemakes_do(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    for name, text in zip(files, ("seed: 1", "results: two"), strict=True):
        Path(name).write_text(text)
    asked = []
    monkeypatch.setattr("sharebench.measure.run.plan.show_plan", lambda study, _: asked.append(study.config) or "")
    assert run("plan", *words.format(*files).split()) == 0
    assert [(each["repeats"], each["seed"], each["results"]) for each in asked] == [(1, 2, "two")]


def test_the_help_is_an_index_with_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    lines = [line.strip() for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines()]
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and "..." not in line for line in lines)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("advice", "No such command 'advice'. Did you mean 'advise'? See sharebench --help"),
        ("plan --config repeats", "--config repeats: it is not KEY=VALUE, such as repeats=3"),
        ("plan --config seed=2 b=1 --config c=3", f"--config {LAST_COUNTS} --config seed=2 b=1 c=3"),
        ("plan --configfile a --configfile=b", f"--configfile {LAST_COUNTS} --configfile a b"),
        ("plan repeats=1", "Got unexpected extra argument (repeats=1); see sharebench plan --help"),
        ("plan --configfile none.yaml", "--configfile none.yaml: No such file or directory; "),
        ("restore --config node=nowhere", "config: node: 'nowhere' is not known; "),
        (f"preflight --config from={DATA}", "config: from: this command is about a study that is measured here; "),
        ("preflight --config node=simulated", "preflight looks at a cluster, and the node is 'simulated'; "),
        ("survey --hours inf", "Invalid value for '--hours': inf is not a finite number; see sharebench survey --help"),
        ("survey --empty-percent nan", "Invalid value for '--empty-percent': nan is not a finite "),
        (f"advise {DATA} --slo latency_ms=50 ttft_ms=500", "DATA: ttft_ms=500 does not exist"),
        ("join part --config node=simulated", "part is not the results of a study; it has no cells/"),
        ("advise", "DATA: results is not a data set "),
        (
            f"advise {DATA.parent}",
            f"DATA: {DATA.parent} is not a data set (manifest.json: No such file or directory); give one of its ",
        ),
        (f"advise {DATA} --tenants 0", "config: tenants: 0 is below 1; "),
        (f"advise {DATA} --slo 50", "--slo 50: it is not PART=MS, such as latency_ms=50"),
        (f"advise {DATA} --slo none --slo latency_ms=4", "--slo none: it asks for no limit; "),
        (f"advise {DATA} --slo latency_ms=5,latency_ms=1", "--slo latency_ms=1: latency_ms is 5 already; give one"),
        (f"advise {DATA} --slo latency_ms=", "--slo latency_ms=: no value; to ask without a limit, give none"),
        (f"advise {DATA} --slo speed=50", "config: slo: 'speed' is an unknown key; "),
        (f"advise {DATA} --slo none.latency_ms=50", "config: slo.workloads: 'none' is not in the catalogue"),
        (f"advise {DATA} --slo training-4096.latency_ms=50", "config: slo.workloads: training-4096: not in "),
        (f"advise {DATA} --slo .latency_ms=50", "config: slo.workloads: the name '' cannot be a workload"),
        (f"advise {DATA} --slo bert.speed=50", "config: slo.workloads.bert: 'speed' is an unknown key; "),
        (f"advise {DATA} --slo bert.ttft_ms=50", "config: slo.workloads.bert.ttft_ms: 'bert' does not stream, so "),
        (f"advise {DATA} none", "DATA: none does not exist"),
        (f"advise {DATA} --workloads none", "config: workloads: none: not in "),
        (f"advise {DATA} --workloads=", "config: workloads: none is named; there are "),
        (f"advise {DATA} --slo=", "--slo: none is given; "),
        ("compare one two", "BEFORE: one is not a data set (manifest.json: No such file or directory); "),
        (f"compare {DATA} {DATA}/", f"not comparable: {DATA} and {DATA} are one data set; "),
        ("survey --hours long", "Invalid value for '--hours': 'long' is not a valid float range; see "),
        ("survey --url localhost:9090", "--url localhost:9090: it is not a URL; write it as http://localhost:9090"),
        ("survey --url http://me:sk-1@h:9090", "--url has a name or a password; write it into ~/.netrc, and the "),
        ("survey --url me:sk-1@h:9090", "--url has a name or a password; "),
        ("survey --url http://x --labels a-b=c", "--labels a-b: it cannot be a label of Prometheus"),
        ("survey --url http://x --labels =y", "--labels =y: it is not KEY=VALUE"),
        ("survey --namespaces team", "--labels and --namespaces have no effect on this host's GPUs; give --url"),
        ("survey --empty-percent 90", "--empty-percent 90 is above --filled-percent, 80; "),
        ("conformance", "RESULTS: results is not a data set "),
        (f"conformance {DATA}", f"RESULTS: {DATA} tests no promises; measure them: snakemake --configfile "),
    ],
)
def test_an_error_is_one_line(words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(*words.split())
    assert isinstance(ended, str) and ended.startswith(line) and "\n" not in ended
    assert "sk-1" not in ended and "targets" not in ended


def test_a_data_set_with_another_config_is_refused_by_its_name(tmp_path: Path) -> None:
    config = {"config": {"node": "nowhere"}, "node_kind": "nowhere"}
    (tmp_path / "manifest.json").write_text(json.dumps(config))
    ended = run("compare", str(tmp_path), str(DATA))
    assert isinstance(ended, str) and ended.startswith(f"BEFORE: {tmp_path}: its config: node: 'nowhere' is not known")


@pytest.mark.parametrize(
    ("study", "words", "line"),
    [
        ("load", "--workloads yolos-light,yolos-heavy --slo latency_ms=100", "yolos-heavy: not known to keep"),
        ("interference", "--workloads yolos+training-4096", "training-4096+yolos: take mps"),
        ("load", "--slo latency_ms=9,yolos-light.latency_ms=50", "Advice for 7 tenants, SLO 9 ms; yolos-light 50 ms, "),
        ("load", "--slo none", "Advice for 7 tenants, no SLO"),
        ("load", "--slo latency_ms=50,ttft_ms=500", "Advice for 7 tenants, SLO latency 50 ms, TTFT 500 ms, from"),
    ],
)
def test_a_question_is_understood_as_people_type_it(
    study: str, words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("advise", str(DATA.parent / study), *words.split()) == 0
    assert line in capsys.readouterr().out


def test_advice_from_a_packed_data_set_leaves_no_file_but_the_unpacked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("advise", str(DATA / "data.zip"), "--tenants", "2", "--slo", "latency_ms=100") == 0
    assert capsys.readouterr().out.startswith("Advice for 2 tenants, SLO 100 ms, from NVIDIA H200")
    assert [path.name for path in tmp_path.iterdir()] == [".snakemake"]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["kept", "not promised"], 0),
        (["kept", "broken", "not measured"], 1),
        (["kept", "not measured"], 2),
        ([], 2),
    ],
)
def test_the_exit_code_tells_whether_promises_are_kept(verdicts: list[str], code: int, tmp_path: Path) -> None:
    with (tmp_path / "conformance.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*COLUMNS, "reason"])
        table.writeheader()
        usual = {"promise": "memory_cap", "strategy": "mps", "measured": 1}
        table.writerows(usual | {"verdict": verdict} for verdict in verdicts)
    kept = read_promises(tmp_path)
    assert kept.exit_code == code
    assert kept.table.count("memory_cap") == len(verdicts)
    assert kept.closing_line.startswith(f"{verdicts.count('broken')} promise" if verdicts else "no promise was tested")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = "from sharebench import cli; cli.commands.main = lambda *_, **__: 'answer'; cli.main([])"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("ending", ["answer", Refusal, OSError, click.UsageError])
def test_a_terminal_obeys_nothing_of_a_data_set(
    ending: str | type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = "a \x1b]0;title\x07\x1b[31mred\x9b2J\r\u202e\n\tline"

    def end(*_: object, **__: object) -> str:
        if isinstance(ending, str):
            return foreign
        raise ending(foreign)

    monkeypatch.setattr(cli.commands, "main", end)
    ended = run("advise")
    said = capsys.readouterr().out if ended == 0 else str(ended)
    assert said.startswith("a red2J\n\tline")


@pytest.mark.thorough
@pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 77, reason="needs the setuptools of envs/dev.txt")
def test_a_wheel_answers_without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On it, pip would find the checkout, and install nothing.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([*pip, *built], check=True)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")))
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    command = [str(tmp_path / "env/bin/sharebench"), "advise", str(DATA), "--tenants", "2"]
    asked = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.startswith("Advice for 2 tenants, no SLO, from NVIDIA H200")
