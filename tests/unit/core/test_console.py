"""Options of jobs, from the parameters of their functions."""

from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TypedDict

import pytest

import job
from sharebench.core import console
from sharebench.core.files import Refusal


class Config(TypedDict):
    d: int


def test_each_parameter_of_a_job_is_an_option_of_its_type() -> None:
    taken: list[object] = []

    def named(out: Path, names: list[str], config: Config, made: Path | None = None, workers: int = 1) -> None:
        taken.extend([out, names, config, made, workers])

    given = ["--out", "a", "--names", "b", "c", "--config", '{"d": 1}']
    assert console.run_job(named, given) == 0
    assert console.run_job(named, [*given, "--made", "e", "--workers", "2"]) == 0
    same = [Path("a"), ["b", "c"], {"d": 1}]
    assert taken == [*same, None, 1, *same, Path("e"), 2]


def test_a_run_job_gets_its_opened_results_and_a_refusal_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def refusing(run: str, out: Path) -> None:
        raise Refusal(f"{run} has no {out}")

    def opening(results: Path) -> nullcontext[str]:
        return nullcontext(f"a run in {results}")

    assert console.run_job(refusing, ["--results", "here", "--out", "there"], opening) == 1
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("  a run in here has no there\n", "a run in here has no there\n")


@pytest.mark.parametrize("given", [[], ["--code", "three"]])
def test_wrong_options_exit_with_2(given: list[str]) -> None:
    def coded(code: int) -> int:
        return code

    assert console.run_job(coded, ["--code", "3"]) == 3
    with pytest.raises(SystemExit, match=r"^2$"):
        console.run_job(coded, given)


@pytest.mark.parametrize("name", job.JOBS)
def test_every_job_has_a_function(name: str) -> None:
    module, _, function = job.JOBS[name].rpartition(".")
    assert callable(getattr(import_module(module), function))
