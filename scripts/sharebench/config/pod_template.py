"""What can be wrong with the pod template of a strategy (`access: static`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Template
from typing import Any

from sharebench.config.words import shown, unknown
from sharebench.core.pod_template import PLACEHOLDERS, _texts, names_in

# Snakemake would take them for wildcards of its own.
BRACES = re.compile(r"\{\w+\}")
# What brings a GPU to a pod: without either of them the scheduler has nothing to go by.
BRINGS = ("resources", "annotations")


def problems(key: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the template of a normalised, schema-valid catalogue entry; `key` is the entry's."""
    template = entry["pod"]
    for where, text in _texts(template):
        for name in names_in(text):
            if name not in PLACEHOLDERS:
                yield f"{key}.pod.{where}: {unknown(name, PLACEHOLDERS, 'is no placeholder')}"
            elif (limit := PLACEHOLDERS[name]) is not None and entry[limit] is None:
                yield f"{key}.pod.{where}: ${name} has nothing to stand for; give {limit}, such as 100/N"
        if BRACES.search(text) or not Template(text).is_valid():
            what = "holds a brace or a $ that is no placeholder; write one as $thread_percent"
            yield f"{key}.pod.{where}: {text!r} {what}"
    if not any(template[part] for part in BRINGS):
        yield f"{key}.pod.resources: {shown({})} brings no GPU; name a resource, such as nvidia.com/gpu: 1"
    for limit in ("thread_percent", "memory_percent"):
        used = {PLACEHOLDERS.get(name) for _, text in _texts(template) for name in names_in(text)}
        if entry[limit] is not None and limit not in used:
            yield (
                f"{key}.{limit}: {entry[limit]!r} reaches no pod; use ${limit} in pod.resources, "
                "or remove it where nothing keeps to it"
            )
