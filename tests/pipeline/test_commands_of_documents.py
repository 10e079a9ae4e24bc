"""Every block of commands in README, docs and the other guides: bash runs it, and each command is tried or checked.

Bash has a PATH of stand-ins alone, which note how they are called: a program that is not in the table below is not
found, and its block fails. Snakemake then reads config and targets of its calls in a copy of the checkout, where need
be as on a host that shows a GPU; `.ci/run` runs those of README. Of make's calls, the recipes go the same way. Of
programs that need a cluster, a cloud or the network, the files and options that they name of this repository exist.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pipeline.harness import REPOSITORY, SNAKEMAKE
from pipeline.prefork import Forked

from sharebench.nodes.host.cpu import LOCK_FOLDER_VARIABLE

pytestmark = pytest.mark.thorough

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SHELLS = {"bash", "sh", "shell", "console"}
DOCUMENTS = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("*.md", "docs/**/*.md", "tests/**/*.md", "config/*.md", "results/*.md", "published/**/*.md")
    for path in REPOSITORY.glob(pattern)
    if any(language in SHELLS for _, language, _ in BLOCK.findall(path.read_text(encoding="utf-8")))
)
REAL = ("mkdir", "cat", "cut", "sha256sum", "touch")
STAND_IN = f"""#!{sys.executable} -SE
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps([os.getcwd(), *sys.argv]), file=calls)
if sys.argv[1:2] == ["clone"]:
    os.symlink(".", "sharebench")
"""
# Only where there is a GPU, or a torch, which this checkout's environment lacks.
NEEDS_GPU = re.compile("shows no NVIDIA GPU|needs an NVIDIA GPU|needs torch")
# What a command before it makes, or what this machine has not.
LACKS = re.compile(
    r"config: (from|datasets|parts): '(results|a|b)/\S+' is not (an existing folder|the results)"
    r"|config: cpu\.cores: \d+ is the number of no core"
)
SECONDS = 300


@dataclass
class Call:
    """A command as bash made it: where, its program as it was written, and its arguments."""

    folder: Path
    program: str
    arguments: list[str]

    def __str__(self) -> str:
        return " ".join([self.program, *self.arguments])


class Copy:
    """A copy of the checkout, for commands."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin, self.calls = root, root / "bin", root / "calls"
        root.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("config", "rules", "scripts", "envs", "profiles", "examples"):
            shutil.copytree(REPOSITORY / name, root / name, ignore=ignored)
        for name in ("Snakefile", "Makefile"):
            shutil.copy(REPOSITORY / name, root)
        for name in ("published", "benchmarks", "docs", "tests"):
            (root / name).symlink_to(REPOSITORY / name)
        capabilities = root / "scripts/sharebench/core/capabilities.py"
        text = capabilities.read_text(encoding="utf-8")
        for shown in ("/dev/nvidia0", "/proc/driver/nvidia/gpus"):
            assert shown in text
            text = text.replace(shown, str(root / "gpu"))
        capabilities.write_text(text, encoding="utf-8")
        for environment in (".venv", ".venv-gpu"):
            (root / environment / "bin").mkdir(parents=True)
            (root / environment / "run.stamp").touch()
        (root / ".venv/dev.stamp").touch()
        (root / ".venv/bin/activate").touch()
        # Places of its user that documents name.
        (root / "my-folder").mkdir()
        (root / "sharebench").symlink_to(".")
        self.bin.mkdir()
        for name in REAL:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        for name in CHECKS:
            self.stand_in(self.bin / name)
        for name in ("python", "snakemake", "pytest", "ruff", "snakefmt", "mypy", "lint-imports"):
            self.stand_in(root / ".venv/bin" / name)
        self.stand_in(root / ".venv-gpu/bin/python")
        for folder in (".venv-triton", ".venv-vllm", "torch"):
            for name in ("pip", "python"):
                self.stand_in(root / folder / "bin" / name)
        self.stand_in(root / "loads/1/unpack")

    @staticmethod
    def stand_in(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)

    def bash(self, script: str, folder: Path) -> list[Call]:
        """The calls of a script, which must end without an error."""
        self.calls.write_text("")
        (self.root / "sharebench").unlink(missing_ok=True) if "git clone" in script else None
        environment = {"PATH": str(self.bin), "HOME": str(self.root), "CALLS": str(self.calls)}
        script = script.replace("/tmp/", f"{self.root}/tmp/")
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", script],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        lines = map(json.loads, self.calls.read_text().splitlines())
        return [Call(Path(folder), program, arguments) for folder, program, *arguments in lines]

    def recipe(self, call: Call) -> list[Call]:
        """The calls of the recipes that make would run."""
        text = (self.root / "Makefile").read_text(encoding="utf-8")
        for word in call.arguments:
            name, is_variable, _ = word.partition("=")
            assert not is_variable or f"$({name})" in text, f"{call}: {name} has no effect"
        command = [str(shutil.which("make")), "--dry-run", *call.arguments]
        environment = os.environ | {"GPU_ENV": ""}
        done = subprocess.run(command, cwd=call.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{call}: {done.stderr}"
        return self.bash(done.stdout, call.folder)

    def snakemake(self, call: Call, *more: str) -> None:
        """Try it, with a GPU if it asks for one."""
        for is_shown in (False, True):
            if is_shown:
                (self.root / "gpu").touch()
            command = [str(SNAKEMAKE), *more, *call.arguments]
            environment = os.environ | {LOCK_FOLDER_VARIABLE: str(self.root)}
            code = Forked(command, call.folder, environment, self.root / "said").wait(SECONDS)
            said = (self.root / "said").read_text()
            (self.root / "gpu").unlink(missing_ok=True)
            if code == 0 or not NEEDS_GPU.search(said):
                break
        assert code == 0 or LACKS.search(said), f"{call}\n{said}"

    def check(self, call: Call, shown: dict[str, str]) -> None:
        """Try it, or what of it can be checked; `shown` has what the document shows before it, by language."""
        name = Path(call.program).name
        if name == "make":
            for made in self.recipe(call):
                self.check(made, shown)
        elif name == "snakemake" and "--lint" not in call.arguments:
            save_what_is_shown(call, shown)
            self.snakemake(call, *(["--quiet", "rules", "-n"] if has_target(call) else ["--list-rules"]))
        else:
            repository_files(call)
            CHECKS[name](call)


def has_target(call: Call) -> bool:
    """Whether a rule or a file is named. Without one, the config alone decides whether the command works."""
    words = re.sub(r"--config .*?(?=(^| )--|$)", "", str(call)).split(" ")[1:]
    with_values = ("--configfile", "--cores", "--snakefile", "--directory")
    return any(
        not word.startswith("-") and before not in with_values
        for before, word in zip(["", *words], words, strict=False)
        if word
    )


def repository_files(call: Call) -> None:
    """What it names of this repository exists."""
    for word in call.arguments:
        for path in re.split("[=,]", word):
            if re.match(r"(config|docs|envs|examples|published|scripts|tests)/", path):
                assert (REPOSITORY / path).exists(), f"{call}: there is no {path}"


def python(call: Call) -> None:
    """The script or the module of this repository has the options, and the arguments where these are names."""
    script, *arguments = call.arguments
    if script == "-m":
        module, *arguments = arguments
        if module != "cluster.testbed":
            assert module in {"pytest", "venv", "pip"}, call
            return
        script = "tests/cluster/testbed/__main__.py"
        assert f'"{arguments[0]}"' in (REPOSITORY / script).read_text(encoding="utf-8"), call
    text = (REPOSITORY / script).read_text(encoding="utf-8")
    for word in arguments:
        option = word.partition("=")[0]
        assert not option.startswith("--") or f'"{option}"' in text, f"{call}: {script} has no {option}"


def kubectl(call: Call) -> None:
    """A verb that kubectl has; a patch is JSON, a folder to apply has a kustomization."""
    verbs = "annotate apply config create delete edit get kustomize label logs patch rollout taint wait"
    assert set(call.arguments) & set(verbs.split()), call
    for option, value in zip(call.arguments, call.arguments[1:], strict=False):
        if option == "-p":
            assert json.loads(value), call
        if option in ("-k", "kustomize"):
            assert (REPOSITORY / value / "kustomization.yaml").is_file(), call


def helm(call: Call) -> None:
    """Of a chart that we have values for, the release and version that the head of its values has, too."""
    assert call.arguments[:2] == ["upgrade", "--install"], call
    if "--values" in call.arguments:
        values = (REPOSITORY / call.arguments[call.arguments.index("--values") + 1]).read_text(encoding="utf-8")
        version = call.arguments[call.arguments.index("--version") + 1]
        assert f"helm upgrade --install {call.arguments[2]} " in values and f"--version {version} " in values, call


def nothing_more(_: Call) -> None:
    """A program that needs a cloud, the network or root: what of this repository it names is checked."""


CHECKS: dict[str, Callable[[Call], None]] = {
    "kubectl": kubectl,
    "helm": helm,
    "python": python,
    "python3": python,
    **dict.fromkeys(("ruff", "snakefmt", "mypy", "lint-imports", "pytest", "pip", "unpack"), nothing_more),
    **dict.fromkeys(("git", "gcloud", "sudo", "apt-get", "uv", "prometheus", "grep", "rm"), nothing_more),
    "nvidia-cuda-mps-control": nothing_more,
    # Tried in other ways: Copy.check.
    **dict.fromkeys(("make", "snakemake"), nothing_more),
}


def blocks(document: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Blocks of commands, each with the last block of every other language before it."""
    before: dict[str, str] = {}
    for indent, language, text in BLOCK.findall((REPOSITORY / document).read_text(encoding="utf-8")):
        body = "\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n"
        if language in SHELLS:
            yield body, dict(before)
        before[language] = body


def save_what_is_shown(call: Call, shown: dict[str, str]) -> None:
    """Files that the reader has saved: a config that is not there yet, and the module of a workload."""
    if "--configfile" in call.arguments:
        path = call.folder / call.arguments[call.arguments.index("--configfile") + 1]
        if not path.exists():
            assert "yaml" in shown, f"{call}: there is no {path.name}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown["yaml"], encoding="utf-8")
            for name in re.findall(r"{here}/(\w+\.py)", shown["yaml"]):
                (call.folder / name).write_text(shown["python"], encoding="utf-8")
    for module in re.findall(r"{module: (\w+)}", str(call)):
        path = call.folder / "scripts/tenant/workloads" / f"{module}.py"
        if not path.exists():
            path.write_text(shown["python"], encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_are_ones_that_work(document: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy")
    for text, shown in blocks(document):
        for call in copy.bash(text, copy.root):
            copy.check(call, shown)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("wrong") / "copy")


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
        "kubectl aply -f config/cluster/verify.yaml",
        "kubectl apply -f config/cluster/verfy.yaml",
        "python -m cluster.testbed hld kubelet",
        "python tests/gpu/bare_loop.py --proceses 4",
    ],
)
def test_a_command_that_does_not_work_is_found(wrong: str, copy: Copy) -> None:
    with pytest.raises(AssertionError):
        for call in copy.bash(wrong, copy.root):
            copy.check(call, {})
