"""Words of commands and configs without what is private."""

import os
import re
from pathlib import Path

OUTSIDE_PREFIX = "…/"
"""Replaces the head of published paths outside a checkout."""
DEVICE_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F-]{8,}")
ABSOLUTE_PATH = re.compile(r"(?<![^\s:=,'\"\[{(])/[^\s,}\]'\"]+")


def redact(text: str) -> str:
    """A word of a command without what is private: the folders of outside paths, and the UUIDs of devices."""
    text = DEVICE_UUID.sub(r"\1-…", text)
    key, separator, value = text.rpartition("=")
    if "{" in text:
        # A mapping, such as nvidia={python: /opt/bin/python}.
        return ABSOLUTE_PATH.sub(lambda found: f"{OUTSIDE_PREFIX}{Path(found.group()).name}", text)
    if not Path(value).is_absolute() and ".." not in Path(value).parts:
        return text
    inside = Path(value).resolve().is_relative_to(Path.cwd())
    return key + separator + (os.path.relpath(value) if inside else f"{OUTSIDE_PREFIX}{Path(value).name}")
