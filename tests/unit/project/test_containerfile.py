"""The Containerfile of the tenants' image, which is not built here."""

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


def test_the_image_installs_exactly_the_lock_of_gpu_tenants() -> None:
    (copied,) = values("COPY")
    source, target = copied.split()
    assert (ENVS / source).exists()
    assert source == "tenant-gpu.txt"
    (command,) = values("RUN")
    assert command.split()[-3:] == ["--require-hashes", "--requirement", target]


def test_the_default_image_is_named_by_a_full_digest() -> None:
    """The tag is for people; a digest names an image that cannot change during a study."""
    image = yaml.safe_load((CONFIG / "config.yaml").read_text())["kubernetes"]["image"]
    assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
