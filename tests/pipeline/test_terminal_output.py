"""The terminal shows one line per cell and a summary, and no output of Snakemake's own."""

import re

import pytest
from pipeline.harness import Checkout

LINES = [
    r"Using workflow specific profile .*",
    r"2 of 28 cells to measure on node simulated: mps 1, mig 1; 2 node switches; about (?:\d+ min )?\d+ s",
    r"then tables, figures and report: about (?:\d+ min )?\d+ s",
    r"cell 1 of 2: (mps|mig) × 2, alpha, repeat 1 · about (?:\d+ min )?\d+ s left",
    r"cell 2 of 2: (mps|mig) × 2, alpha, repeat 1 · about (?:\d+ min )?\d+ s left",
    r"writing the tables · about (?:\d+ min )?\d+ s left",
    r"drawing the figures · about (?:\d+ min )?\d+ s left",
    r"writing the report · about (?:\d+ min )?\d+ s left",
    r"simulated:",
    r"2 tenants +one alone +time-slicing +mps +mig",
    r"-[- ]+-",
    r"alpha +6\.6\d ms, 15\d/s +14\.\d ms, 13\d/s +11\.\d ms, 1\d\d/s +37\.\d ms, 5[\d.]*/s",
    r"beta .*/s",
    r"report: results/report\.html",
]


PROFILE = "Using workflow specific profile profiles/default for setting default command line arguments."


def test_an_unknown_target_is_answered_with_the_list_of_targets(untouched: Checkout) -> None:
    asked = untouched.run("advice")
    assert asked.code == 1
    first, line = asked.out.splitlines()
    assert first == PROFILE and line.startswith("no rule and no file advice; targets: aggregate, all, archive, ")
    assert ", run_cell" not in line, "a rule that needs the name of a cell is not a target"


TARGETS_OF_OLD = {
    "plan": " --configfile .*/simulated.yaml",
    "advise": r" \[OPTIONS\] \[DATA\]\.*",
    "preflight": " --configfile .*/simulated.yaml",
    "survey": r" \[OPTIONS\]",
    "compare": r" \[OPTIONS\] BEFORE AFTER",
    "join": r" PARTS\.\.\. --configfile .*/simulated.yaml",
    "restore": " --configfile .*/simulated.yaml",
}


@pytest.mark.parametrize("target", TARGETS_OF_OLD)
def test_a_target_of_0_1_that_asked_is_answered_with_the_command(target: str, untouched: Checkout) -> None:
    asked = untouched.run(target)
    profile, line = asked.out.splitlines()
    answer = f"{target} is a command, not a target; type: sharebench {target}"
    assert (asked.code, profile) == (1, PROFILE) and re.fullmatch(answer + TARGETS_OF_OLD[target], line), line


def test_a_rerun_prints_one_line_per_cell_and_a_summary(finished: Checkout) -> None:
    finished.delete_records("mig/alpha/2/1", "mps/alpha/2/1")
    lines = [line for line in finished.run().ok().out.splitlines() if not line.endswith(" so far")]
    assert len(lines) == len(LINES), "\n".join(lines)
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line)
    times = re.findall(r"about (?:(\d+) min )?(\d+) s left", "\n".join(lines))
    # What the first cell takes is not known before.
    left = [60 * int(minutes or 0) + int(seconds) for minutes, seconds in times][1:]
    assert left == sorted(left, reverse=True), "the estimate rises"
