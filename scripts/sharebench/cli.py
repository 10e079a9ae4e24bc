"""The command `sharebench`: it asks what a study would do, what a node can do, and what finished results say.

`snakemake` measures and builds; its jobs never import this module. Commands import late, so that the help is quick.
"""

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from sharebench.core import console
from sharebench.core.emphasis import show
from sharebench.core.files import REPOSITORY, Refusal
from sharebench.model.config.files import (
    FILE_OPTIONS,
    OWN_FILES,
    PAIR_OPTIONS,
    config_options,
    merged,
    problems,
    values_of,
)
from sharebench.model.config.repeated import repeated_options
from sharebench.read.survey.limits import Limits

if TYPE_CHECKING:
    from sharebench.study.study import Study

Command = Callable[..., int | str | None]
FOLDER = click.Path(path_type=Path)


class Finite(click.FloatRange):
    """A number above 0, up to `max`."""

    def __init__(self, max: float | None = None) -> None:
        super().__init__(0, max, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


PERCENT = Finite(100)
results_option = click.option("--results", type=FOLDER, default=Path("results"), help="Folder that receives it.")


class Index(click.Group):
    """Commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class SeveralValues(click.Command):
    """A command without arguments, whose options for a config take several values each, as Snakemake's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # What a run prints as its `restore` has an option for each value.
        if self.name == "plan" and (twice := "\n".join(repeated_options(args))):
            raise Refusal(twice)
        option, words = "", list[str]()
        for word in args:
            if word.startswith("-"):
                option = word.partition("=")[0]
            elif option in ("--configfile", "--config") and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


@click.group(cls=Index, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="sharebench", message="%(prog)s %(version)s")
def commands() -> None:
    """Ask about sharing one GPU; `snakemake` measures it."""


def usage(name: str, config_words: Sequence[str]) -> str:
    """What to type for the command of this name, with the options for a config where it takes these."""
    command = commands.commands[name]
    pieces = command.collect_usage_pieces(click.Context(command))
    if config_words and any(option.name == "configfile" for option in command.params):
        if isinstance(command, SeveralValues):
            config_words = _one_option_each(
                values_of(FILE_OPTIONS, config_words), values_of(PAIR_OPTIONS, config_words)
            )
        pieces = [*pieces[1:], shlex.join(config_words)]
    return " ".join([f"sharebench {name}", *pieces])


def _one_option_each(files: Iterable[str], pairs: Iterable[str]) -> list[str]:
    """One option for all files, and one for all KEY=VALUE, as Snakemake reads them."""
    options = (["--configfile", *files], ["--config", *pairs])
    return [word for option in options if len(option) > 1 for word in option]


def asks_about_a_study(command: Command) -> Command:
    """Options for the study that a command is about, which become its first argument, and the words that name it."""

    def run(configfile: Sequence[str], config: Sequence[str], **others: Any) -> int | str | None:
        words = _one_option_each(configfile, config)
        if found := "\n".join(problems(words)):
            raise Refusal(found)
        # What is joined may open where it could not be measured.
        more: dict[str, object] = {"measured_elsewhere": True} if "parts" in others else {}
        return command(_open_study(configfile, config, more), words, **others)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    click.option("--configfile", multiple=True, metavar="FILE", help="Config file of the study.")(run)
    click.option("--config", multiple=True, metavar="KEY=VALUE", help="A key of the config, over its files.")(run)
    return run


def _open_study(files: Sequence[str], pairs: Sequence[str], more: dict[str, object]) -> "Study":
    from sharebench.study.open_study import open_study

    own_files = [REPOSITORY / "config" / name for name in OWN_FILES]
    study = open_study(merged([*own_files, *map(Path, files)], pairs) | more, files)
    if study.config["from"]:
        raise Refusal("config: from: this command is about a study that is measured here; leave it out")
    return study


@commands.command(cls=SeveralValues)
@asks_about_a_study
def plan(study: "Study", words: Sequence[str]) -> str:
    """What a study would measure: cells, node switches, time."""
    if not (REPOSITORY / "Snakefile").is_file():
        raise Refusal("plan needs Snakemake's rules; run it in a checkout, whose `make install` installs the command")
    from sharebench.measure.run.plan import show_plan

    return show_plan(study, words)


@commands.command()
@click.argument("data", type=FOLDER, nargs=-1)
@click.option("--workloads", multiple=True, metavar="NAME,...", help="Workloads that it is about; all, if not given.")
@click.option("--tenants", type=int, help="Number of tenants.")
@click.option(
    "--slo",
    multiple=True,
    metavar="[WORKLOAD.]PART=MS",
    help="Limit of a request, such as latency_ms=50 (p95) or chat.ttft_ms=500 (p99), or `none`; several as A=1,B=2.",
)
@click.option("--isolation", metavar="none|performance|fault", help="Isolation that tenants need.")
@click.option("--deploy", metavar="auto|host|device-plugin|claims", help="What the tenants can have.")
@click.option("--one-process", is_flag=True, default=None, help="Tenants can become threads of one process.")
@click.option("--margin-percent", type=float, help="Gain that counts as one.")
@click.option("--price-per-hour", type=float, help="Price of one device per hour, in dollars.")
def advise(
    data: Sequence[Path],
    workloads: Sequence[str],
    slo: Sequence[str],
    **asked: object,
) -> str:
    """Which strategy serves your tenants within an SLO.

    The answer comes from the data set DATA (results), a folder or an archive. What others after it have measured on
    the same kind of GPU counts too, and so do the other studies of a publication.
    """
    from sharebench import rebuild
    from sharebench.datasets import dataset
    from sharebench.model.config.load import load
    from sharebench.read.decide import decide

    data = data or (Path("results"),)
    study, folder = dataset.open_complete(data[0], "DATA")
    given = {key: value for key, value in asked.items() if value is not None}
    limits = _words(slo)
    if slo and not limits:
        raise Refusal("--slo: none is given; such as latency_ms=50, or `none`; leave it out for that of the study")
    if "none" in limits and len(limits) > 1:
        raise Refusal("--slo none: it asks for no limit; leave it out, or the others")
    if limits:
        given["slo"] = None if limits == ["none"] else _limits(limits)
    config = load(study.config | given)
    config["workloads"] = _words(workloads)
    question = dataset.resolve_question(config, given, [*given, *(["workloads"] if workloads else [])], study)
    others = dataset.other_studies(data, "DATA", lambda line: print(_plain(line), file=sys.stderr))
    with TemporaryDirectory() as made:
        rebuild.write_tables(dataset.apply_question(study, question), folder, Path(made))
        answer = decide.answer(decide.read_results(folder, Path(made), others), question)
    if len(answer.answers) < 2:
        return answer.for_terminal()
    one = shlex.join(["sharebench", "advise", *map(str, data), "--workloads", answer.answers[0].workload])
    return f"{answer.for_terminal()}\n\nOne of them with all plans and reasons: {one}"


def _words(texts: Sequence[str]) -> list[str]:
    """The words of an option that is given several times, or once with commas."""
    return [word for text in texts for each in text.split(",") if (word := each.strip())]


def _limits(texts: Sequence[str]) -> dict[str, object]:
    """The config's key `slo`; what is before the last dot is a workload."""
    slo: dict[str, Any] = {"workloads": {}}
    for key, value in _pairs("slo", texts, "PART=MS, such as latency_ms=50").items():
        if not value:
            raise Refusal(f"--slo {key}=: no value; to ask without a limit, give none")
        name, dot, part = key.rpartition(".")
        (slo["workloads"].setdefault(name, {}) if dot else slo)[part] = value
    return slo


def _pairs(key: str, texts: Sequence[str], form: str = "KEY=VALUE") -> dict[str, str]:
    if unusable := [text for text in texts if "=" not in text.lstrip("=")]:
        raise Refusal(f"--{key} {unusable[0]}: it is not {form}")
    pairs: dict[str, str] = {}
    for name, _, value in (text.partition("=") for text in texts):
        if name in pairs:
            raise Refusal(f"--{key} {name}={value}: {name} is {pairs[name]} already; give one of them")
        pairs[name] = value
    return pairs


@commands.command(cls=SeveralValues)
@asks_about_a_study
def preflight(study: "Study", words: Sequence[str]) -> int:
    """What a cluster lacks for a study: parts, rights."""
    from sharebench.measure.nodes.kubernetes.preflight.preflight import show

    return show(study.config)


def _limit(name: str, kind: click.ParamType[Any], text: str) -> Callable[[Command], Command]:
    default = getattr(Limits, name)
    return click.option(f"--{name.replace('_', '-')}", type=kind, default=default, show_default=True, help=text)


@commands.command()
@click.option("--url", help="Prometheus that scrapes dcgm-exporter; without one, this host's GPUs are watched.")
@click.option("--labels", multiple=True, metavar="KEY=VALUE", help="Label of the series that count.")
@click.option("--namespaces", multiple=True, metavar="NAME", help="Namespace whose workloads are judged; all without.")
@click.option("--hours", type=Finite(), help="Hours of the past (24), or to watch (1).")
@_limit("empty_percent", PERCENT, "Largest mean activity of a workload that leaves its GPU empty.")
@_limit("filled_percent", PERCENT, "Largest sum of the activities of workloads on one GPU.")
@_limit("memory_percent", PERCENT, "Largest sum of their memory, in percent of the GPU's.")
@_limit("tenants", click.IntRange(2, 48), "Most workloads on one GPU.")
@results_option
def survey(results: Path, url: str | None, labels: Sequence[str], hours: float | None, **limits: Any) -> str:
    """Which workloads leave their GPU empty and fit together."""
    from sharebench.survey import survey as write_survey

    return write_survey(results / "survey", url, _pairs("labels", labels), hours, Limits(**limits))


@commands.command()
@click.argument("before", type=FOLDER)
@click.argument("after", type=FOLDER)
@results_option
def compare(before: Path, after: Path, results: Path) -> str:
    """How latency and throughput differ in two data sets."""
    from sharebench.datasets import dataset
    from sharebench.read.compare import write_comparison

    return write_comparison(before, after, results / "compare" / dataset.combined_name([str(before), str(after)]))


@commands.command()
@click.argument("parts", type=FOLDER, nargs=-1, required=True)
@asks_about_a_study
def join(study: "Study", words: Sequence[str], parts: Sequence[Path]) -> str:
    """Join the PARTS of a study, measured in several folders."""
    from sharebench.datasets import join as joining

    config = [*(() if "--config" in words else ("--config",)), "measured_elsewhere=true"]
    command = ["snakemake", "--cores", "1", *words, *config]
    joined = joining.join(study, parts, Path(study.config["results"]))
    return f"{joined}\ntables, figures and report: {shlex.join(command)}"


@commands.command(cls=SeveralValues)
@asks_about_a_study
def restore(study: "Study", words: Sequence[str]) -> int:
    """Restore the node to its saved state after a kill."""
    from sharebench.datasets.dataset import excluded_cells_note
    from sharebench.measure.run.restore import restore_node

    options = config_options(values_of(FILE_OPTIONS, words), values_of(PAIR_OPTIONS, words))
    return restore_node(study, Path(study.config["results"]), options, excluded_cells_note(study))


@commands.command()
@click.argument("results", type=FOLDER, default=Path("results"))
def conformance(results: Path) -> int:
    """Which promises each strategy keeps.

    The answer comes from the records of RESULTS, a folder or an archive, of a study like config/conformance.yaml. Ends
    with 1 where a promise is broken, else with 2 where one that is made was not measured, or none is there.
    """
    from sharebench import rebuild
    from sharebench.datasets import dataset
    from sharebench.model.study_config import has_conformance
    from sharebench.read.promises import read_promises

    study = dataset.read_study(results, "RESULTS")
    if not has_conformance(study.config):
        raise Refusal(
            f"RESULTS: {results} tests no promises; measure them: snakemake --configfile config/conformance.yaml"
        )
    folder = dataset.check_complete(study, "RESULTS")
    with TemporaryDirectory() as made:
        rebuild.write_tables(study, folder, Path(made))
        kept = read_promises(Path(made) / "tables")
    _say("\n".join([kept.table, "", *kept.problems, kept.closing_line]).lstrip())
    return kept.exit_code


def _plain(text: str) -> str:
    """The text without what a terminal would obey, since a data set may be another user's."""
    return "".join(each for each in console.ESCAPES.sub("", text) if each.isprintable() or each in "\n\t")


def _say(text: str) -> None:
    try:
        show(_plain(text))
    except BrokenPipeError:
        # A reader such as `head` has seen enough. Python writes the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Every error is one line."""
    console.accept_any_text()
    try:
        answer = commands.main(arguments, prog_name="sharebench", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        answer = help_text.format_message()
    except click.ClickException as problem:
        line = problem.format_message().rstrip(".")
        context = getattr(problem, "ctx", None)
        asked = context.command_path if context else "sharebench"
        sys.exit(_plain(f"{line}{' See' if line.endswith('?') else '; see'} {asked} --help"))
    except Refusal as problem:
        sys.exit(_plain(str(problem)))
    except OSError as problem:
        sys.exit(_plain(f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)))
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    if isinstance(answer, str):
        _say(answer)
        answer = 0
    sys.exit(answer)


if __name__ == "__main__":
    main()
