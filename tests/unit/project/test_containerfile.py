"""The tenants' image as its file describes it; it is not built here."""

import re
from pathlib import Path

import yaml

ENVS = Path(__file__).parents[3] / "envs"
CONFIG = Path(__file__).parents[3] / "config"
KNOWN = {"COPY", "ENV", "FROM", "RUN", "USER"}


def instructions() -> list[tuple[str, str]]:
    lines = (ENVS / "tenant.Containerfile").read_text().replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")]


def values(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def test_it_installs_the_lock_that_gpu_tenants_have_everywhere_and_nothing_else() -> None:
    (copied,) = values("COPY")
    source, target = copied.split()
    assert (ENVS / source).exists()
    assert source == "tenant-gpu.txt"
    (command,) = values("RUN")
    assert command.split()[-3:] == ["--require-hashes", "--requirement", target]


def test_the_default_image_is_named_by_a_whole_digest() -> None:
    """Tag for people, digest for machines: what it names cannot change under a study."""
    image = yaml.safe_load((CONFIG / "config.yaml").read_text())["kubernetes"]["image"]
    assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
