"""The Containerfiles of the tenants' and the client's image, which are not built here."""

import re
from pathlib import Path

import pytest
import yaml

ENVS = Path(__file__).parents[3] / "envs"
CONFIG = Path(__file__).parents[3] / "config"


def instructions(image: str) -> list[tuple[str, str]]:
    lines = (ENVS / f"{image}.Containerfile").read_text().replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")]


def values(image: str, name: str) -> list[str]:
    return [rest for word, rest in instructions(image) if word == name]


@pytest.mark.parametrize(("image", "lock"), [("tenant", "tenant-gpu.txt"), ("client", "client.txt")])
def test_an_image_installs_exactly_its_lock(image: str, lock: str) -> None:
    (copied,) = values(image, "COPY")
    source, target = copied.split()
    assert (ENVS / source).exists()
    assert source == lock
    (command,) = values(image, "RUN")
    assert command.split()[-3:] == ["--require-hashes", "--requirement", target]


def test_the_default_image_is_named_by_a_full_digest() -> None:
    """The tag is for people; a digest names an image that cannot change during a study."""
    image = yaml.safe_load((CONFIG / "config.yaml").read_text())["kubernetes"]["image"]
    assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
