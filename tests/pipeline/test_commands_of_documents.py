"""Every command in README, docs and the other guides is checked as far as possible without its devices.

Snakemake reads config and targets of its commands in a copy of the checkout; `.ci/run` runs those of README. Targets
and variables of make must exist, and so must this repository's files and options that other commands name.
"""

import contextlib
import itertools
import json
import re
import shlex
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import click
import pytest
import yaml
from pipeline.conftest import copied
from pipeline.harness import REPOSITORY, SNAKEMAKE, TIMEOUT_SECONDS, Checkout
from pipeline.prefork import Forked

from sharebench import cli
from sharebench.core.files import Refusal
from sharebench.model.records.types import CellRecord
from sharebench.read.gates.gates import evaluate

pytestmark = pytest.mark.thorough

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
# A command in a sentence or a table. One with an ellipsis or a word in capitals stands for many.
INLINE = re.compile(r"`((?:\.venv/bin/)?(?:snakemake|sharebench|make) (?!-n`|[^`]*(?:…|\b[A-Z]{4,}\b(?!=)))[^`]+)`")
PATTERNS = ("*.md", "docs/**/*.md", "*/*.md", "tests/**/*.md", "published/**/*.md")
DOCUMENTS = sorted(
    {
        str(path.relative_to(REPOSITORY))
        for pattern in PATTERNS
        for path in REPOSITORY.glob(pattern)
        # The changelog has commands of earlier versions.
        if path.name != "CHANGELOG.md"
        and ("```bash" in (text := path.read_text(encoding="utf-8")) or INLINE.search(text))
    }
)
SUBSTITUTION = re.compile(r"^\w+=\$\((.*)\)$", re.MULTILINE)
HERE_DOCUMENT = re.compile(r" <<'(\w+)'\n.*?\n\1\n", re.DOTALL)
ASSIGNMENT = re.compile(r"(?:export )?(\w+)=(.*)", re.DOTALL)
# Refusals that only report what this machine lacks: a GPU, results of an earlier command, a user's folders and cores.
LACKS = re.compile(
    r"shows no NVIDIA GPU|needs an NVIDIA GPU|needs torch"
    r"|config: from: '(results|a|b)/\S+' is not an existing folder"
    r"|'{here}/\.venv-\w+/bin/python' is not there"
    r"|config: prometheus\.folder: '/tmp/watched/targets' is not an existing folder"
    r"|config: cpu\.cores: \d+ is the number of no core"
    r"|File results/\S+ marked for report but does not exist"
)
KUBECTL = re.compile(r" (annotate|apply|config|create|delete|edit|get|label|logs|patch|rollout|taint|uncordon|wait) ")
# Programs whose arguments are checked only for files of this repository, and words of bash.
OTHERS = re.compile(
    r"git|gcloud|sudo|apt-get|uv|prometheus|grep|rm|mkdir|cat|cut|sha256sum|echo|cd|source|wait|for|do|done|pip|pytest|unpack"
    "|nvidia-cuda-mps-control"
)


def commands(script: str) -> Iterator[list[str]]:
    """The words of each command with its variables filled in; assignments alone are left out."""
    script = SUBSTITUTION.sub(r"\1", HERE_DOCUMENT.sub("\n", script)).replace("\\\n", " ")
    known = {"node": "node", "namespace": "namespace", "map": "map", "pipe": "pipe", "token": "token", "name": "name"}
    for line in script.splitlines():
        lexer = shlex.shlex(string.Template(line).safe_substitute(known), posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            assigned = ASSIGNMENT.fullmatch(word)
            if set(word) <= set("&|;"):
                if words and words != ["export"]:
                    yield words
                words = []
            elif assigned and words in ([], ["export"]):
                known[assigned[1]] = assigned[2]
            else:
                words.append(word)


def blocks(document: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each block of commands, with the last block of every language up to it."""
    before: dict[str, str] = {}
    for indent, language, text in BLOCK.findall((REPOSITORY / document).read_text(encoding="utf-8")):
        before[language] = "\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n"
        if language == "bash":
            yield before["bash"], before


def inline(document: str) -> list[str]:
    """The commands in sentences and tables, each once."""
    text = BLOCK.sub("", (REPOSITORY / document).read_text(encoding="utf-8"))
    return list(dict.fromkeys(" ".join(found.split()) for found in INLINE.findall(text)))


def make(words: list[str], shown: dict[str, str], checkout: Checkout) -> None:
    """Check that the Makefile has the targets and variables; arguments for snakemake are tried."""
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for word in words[1:]:
        name, is_variable, value = word.partition("=")
        assert f"$({name})" in text or f"{name} ?=" in text if is_variable else f"\n{name}:" in text, word
        if name == "ARGS":
            snakemake(["snakemake", *shlex.split(value)], shown, checkout)


def save_files(words: list[str], shown: dict[str, str], checkout: Checkout) -> None:
    """Save the files that the document shows before a command."""
    saved = [words[at + 1] for at, word in enumerate(words) if word == "--configfile"]
    for name in saved:
        if not (checkout.root / name).exists():
            (checkout.root / name).parent.mkdir(exist_ok=True)
            (checkout.root / name).write_text(shown["yaml"], encoding="utf-8")
            for script in re.findall(r"{here}/(\w+\.py)", shown["yaml"]):
                (checkout.root / script).write_text(shown["python"], encoding="utf-8")
    for module in re.findall(r"{module: (\w+)}", " ".join(words)):
        path = checkout.root / f"scripts/tenant/workloads/{module}.py"
        if not path.exists():
            path.write_text(shown["python"], encoding="utf-8")


def only_lacks(refusal: str) -> bool:
    """Whether a refusal, which has a line for each problem, is only about what this machine lacks."""
    lines = [line for line in refusal.splitlines() if line.startswith("config: ")] or [refusal]
    return all(map(LACKS.search, lines))


def snakemake(words: list[str], shown: dict[str, str], checkout: Checkout) -> None:
    """Check that snakemake accepts config and targets."""
    save_files(words, shown, checkout)
    words = [word.replace("~/sharebench/", "") for word in words[1:]]
    without_values = re.sub(r"--config( [^-]\S*)+|--(configfile|cores|snakefile|directory) \S+", "", " ".join(words))
    has_target = any(not word.startswith("-") for word in without_values.split())
    command = [str(SNAKEMAKE), *(["--quiet", "rules", "-n"] if has_target else ["--list-rules"]), *words]
    said = checkout.root / "tmp/said"
    environment = checkout.environment(checkout.root / "tmp/ledger")
    code = Forked(command, checkout.root, environment, said).wait(TIMEOUT_SECONDS)
    assert code == 0 or only_lacks(said.read_text()), f"{shlex.join(words)}\n{said.read_text()}"


def options(words: list[str]) -> None:
    """Check that the script has the options, or that the test bed has the command."""
    script, *arguments = words[1:]
    if script == "-m":
        module, *arguments = arguments
        if module != "cluster.testbed":
            assert module in ("pytest", "venv"), words
            return
        script = "tests/cluster/testbed/__main__.py"
        assert f'"{arguments[0]}"' in (REPOSITORY / script).read_text(encoding="utf-8"), words
    text = (REPOSITORY / script).read_text(encoding="utf-8")
    assert all(f'"{word}"' in text for word in arguments if word.startswith("--")), words


def kubectl(words: list[str]) -> None:
    """Check the verb, that a patch is JSON, and that a folder to apply has a kustomization."""
    assert KUBECTL.search(" ".join(words)), words
    for option, value in itertools.pairwise(words):
        if option == "-p":
            assert json.loads(value), words
        if option == "-k":
            assert (REPOSITORY / value / "kustomization.yaml").is_file(), words


def helm(words: list[str]) -> None:
    """Check release and version of a chart against the head of our values for it."""
    assert words[1:3] == ["upgrade", "--install"], words
    if "--values" in words:
        values = (REPOSITORY / words[words.index("--values") + 1]).read_text(encoding="utf-8")
        version = words[words.index("--version") + 1]
        assert f"helm upgrade --install {words[3]} " in values and f"--version {version} " in values, words


def sharebench(words: list[str], shown: dict[str, str], checkout: Checkout) -> None:
    """Check the command, its options and its config, without running it."""
    name, command, arguments = cli.commands.resolve_command(click.Context(cli.commands), words[1:])
    assert name and command, words
    if arguments in ([], ["--help"]):
        return
    given = command.make_context(name, arguments).params
    if "configfile" in given:
        save_files(words, shown, checkout)
        more: dict[str, object] = {"measured_elsewhere": "parts" in given}
        with contextlib.chdir(checkout.root):
            try:
                cli._open_study(given["configfile"], given["config"], more)
            except Refusal as refusal:
                assert only_lacks(str(refusal)), f"{shlex.join(words)}\n{refusal}"


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "python": options,
    "python3": options,
    "kubectl": kubectl,
    "helm": helm,
}


def check(words: list[str], shown: dict[str, str], checkout: Checkout) -> None:
    name = Path(words[0]).name
    if name == "make":
        make(words, shown, checkout)
    elif name == "snakemake":
        snakemake(words, shown, checkout)
    elif name == "sharebench":
        repository_files(words)
        sharebench(words, shown, checkout)
    else:
        repository_files(words)
        assert name in CHECKS or OTHERS.fullmatch(name), words
        if name in CHECKS:
            CHECKS[name](words)


def repository_files(words: list[str]) -> None:
    for word in words:
        for path in re.split("[=,]", word):
            if re.match(r"(config|docs|envs|examples|published|scripts|tests)/", path):
                assert (REPOSITORY / path).exists(), f"{shlex.join(words)}: there is no {path}"


@pytest.fixture(scope="module")
def shared_checkout(
    untouched_template: Path, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkout]:
    after = tmp_path_factory.mktemp("documents") / "checkout"
    for checkout in copied(untouched_template, place, after, "simulated.yaml"):
        for name in ("published", "tests"):
            (checkout.root / name).symlink_to(REPOSITORY / name)
        yield checkout


@pytest.fixture
def checkout(shared_checkout: Checkout) -> Iterator[Checkout]:
    before = shared_checkout.files()
    yield shared_checkout
    for name in shared_checkout.files() - before:
        (shared_checkout.root / name).unlink()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_work(document: str, checkout: Checkout) -> None:
    for text, shown in blocks(document):
        for words in commands(text):
            check(words, shown, checkout)
    for text in inline(document):
        for words in commands(text):
            check(words, {}, checkout)


def test_the_tutorial_measures_two_tenants_under_each_strategy_that_shares(checkout: Checkout) -> None:
    shown = next(shown for text, shown in blocks("docs/your-own-workload.md") if "--configfile mine.yaml" in text)
    save_files(["--configfile", "mine.yaml"], shown, checkout)
    asked = yaml.safe_load(shown["yaml"])
    checkout.run(study="mine.yaml", config=["repeats=1", "results=results"]).ok()
    largest = max(asked["replicas"])
    shared = [f"{name}/mine/{largest}/1" for name in asked["strategies"] if name != "exclusive"]
    assert largest > 1 and shared
    for record in map(checkout.record, shared):
        assert record["status"] == "ok" and len(record["tenants"]) == largest
        failed = {gate["name"] for gate in evaluate(cast(CellRecord, record)) if not gate["passed"]}
        assert failed.isdisjoint({"evidence", "errors", "nothing_finished"})


def test_commands_in_sentences_and_tables_are_found() -> None:
    assert "sharebench compare results/before results/after" in inline("docs/recipes.md")


@pytest.mark.parametrize(
    "wrong",
    [
        "snakemkae -n",
        "make instal",
        "make run ARG=x",
        "kubectl apply -k config/cluster/tenant",
        "helm upgrade --install nvdp c --version 0.1 --values config/cluster/plugin-values.yaml",
        "snakemake --cores 1 --configfile config/qick.yaml",
        "snakemake --config stategies=mps",
        "snakemake pln",
        "sharebench plan --configfile config/quick.yaml --config stategies=mps",
        "kubectl aply -f config/cluster/verify.yaml",
        "kubectl apply -f config/cluster/verfy.yaml",
        "python -m cluster.testbed hld kubelet",
        "python tests/gpu/bare_loop.py --proceses 4",
    ],
)
def test_a_command_that_does_not_work_is_found(wrong: str, checkout: Checkout) -> None:
    with pytest.raises((AssertionError, KeyError)):
        for words in commands(wrong):
            check(words, {}, checkout)
