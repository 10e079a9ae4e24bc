"""Findings: sentences by people, numbers by the tables, and a check beside each that they say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from sharebench.paper_numbers import DataSet, NoNumber

SOURCE = Path("docs/findings.yaml")
PAGE = Path("docs/findings.md")
IMAGES = Path("docs/images/findings")
KEYS = {"name", "question", "data", "let", "number", "holds", "sentence", "figure", "caveat", "rival", "ruled_out"}
TEXTS = ("number", "sentence", "caveat", "rival", "ruled_out")


class Contradicted(Exception):
    """A finding does not follow from the data, or is not written as one; one line."""


@dataclass(frozen=True)
class Finding:
    """A finding of the source with its texts filled in; of one whose data are not published only the question."""

    name: str
    question: str
    texts: Mapping[str, str] = field(default_factory=dict)
    figure: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What `let` names."""
    is_open: bool = False
    data: tuple[str, ...] = ()


def at(strategy: str, workload: str, replicas: int, **more: Any) -> dict[str, Any]:
    """The cells of a point of the matrix, as columns of tables/cells.csv."""
    return {"strategy": strategy, "workload": workload, "replicas": replicas, **more}


def read_source(path: Path) -> dict[str, Any]:
    """docs/findings.yaml: `data` (alias → data sets, the first that is there counts), `names`, `findings`, `blocks` ….

    Raises Contradicted when it is no YAML.
    """
    try:
        source: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise Contradicted(f"{SOURCE}: {' '.join(str(error).split())}") from None
    return source


class Filler:
    """Fills in texts from the published data sets that `data` names; those that are not there are open questions."""

    def __init__(self, source: Mapping[str, Any], published: Path, made: Path) -> None:
        self._names = source["names"]
        self.of: dict[str, DataSet] = {}
        for alias, names in source["data"].items():
            if there := [name for name in names if (published / name / "manifest.json").exists()]:
                self.of[alias] = DataSet(there[0], published, made)
        asked = {alias for entry in source["findings"] for alias in entry.get("data", ())}
        if unknown := sorted(asked - source["data"].keys()):
            raise Contradicted(f"{SOURCE}: data: {unknown[0]} is not among them, and a finding names it")
        for data in self.of.values():
            if not data.is_of_a_gpu:
                what = data.device["label"] or f"node {data.device['kind']}"
                raise Contradicted(f"{SOURCE}: data: {data.name} is no measurement of a GPU ({what}); take it out")
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._environment.globals.update(self.of)
        self._environment.globals.update(self._names)
        self._environment.globals.update(at=at)

    def add(self, **functions: Any) -> None:
        """More that texts may call."""
        self._environment.globals.update(functions)

    def value(self, where: str, expression: str, known: Mapping[str, Any]) -> Any:
        """The value of an expression. Raises Contradicted where the data do not have it."""
        try:
            found = self._environment.compile_expression(expression, undefined_to_none=False)(**known)
            str(found)
            return found
        except (NoNumber, jinja2.TemplateError, TypeError, KeyError) as error:
            raise Contradicted(f"{SOURCE}: {where}: {expression}: {error}") from None

    def text(self, where: str, template: str, known: Mapping[str, Any] | None = None) -> str:
        """A text with its numbers. Raises Contradicted where the data do not have one of them."""
        try:
            return self._environment.from_string(template).render(known or {}).strip()
        except (NoNumber, jinja2.TemplateError, TypeError, KeyError) as error:
            raise Contradicted(f"{SOURCE}: {where}: {error}") from None

    def finding(self, entry: Mapping[str, Any]) -> Finding:
        """One finding. Raises Contradicted when its number does not say what its sentence does."""
        name = str(entry.get("name"))
        if missing := KEYS - {"let"} - entry.keys():
            raise Contradicted(f"{SOURCE}: {name}: has no {sorted(missing)[0]}")
        if unknown := entry.keys() - KEYS:
            raise Contradicted(f"{SOURCE}: {name}: {sorted(unknown)[0]} is an unknown key")
        aliases = tuple(entry["data"])
        if any(alias not in self.of for alias in aliases):
            return Finding(name, entry["question"], is_open=True, data=aliases)
        known: dict[str, Any] = {}
        for key, expression in entry.get("let", {}).items():
            known[key] = self.value(name, expression, known)
        if not entry["holds"]:
            raise Contradicted(f"{SOURCE}: {name}: holds is empty; say what must be true of the number")
        for claim in entry["holds"]:
            if self.value(name, claim, known) is not True:
                numbers = ", ".join(f"{key} is {number}" for key, number in known.items())
                raise Contradicted(f"{SOURCE}: {name}: the data contradict it: not {claim}, {numbers}")
        texts = {key: self.text(name, entry[key], known) for key in TEXTS}
        if re.search(r"[.!?] ", texts["sentence"]) or not texts["sentence"].endswith("."):
            raise Contradicted(f"{SOURCE}: {name}: sentence: is not one sentence")
        return Finding(name, entry["question"], texts, entry["figure"], known, data=aliases)


def page(findings: list[Finding], filler: Filler, introduction: str) -> str:
    """docs/findings.md."""
    parts = ["# Findings", introduction]
    for number, finding in enumerate((each for each in findings if not each.is_open), 1):
        texts = finding.texts
        datasets = {filler.of[alias].name: filler.of[alias] for alias in finding.data}
        sources = ", ".join(f"[{name}](../{data.about})" for name, data in datasets.items())
        once = (
            "" if any(data.has_repeats for data in datasets.values()) else " (measured once: no interval over repeats)"
        )
        parts += [
            f"## {number}. {finding.question}",
            f"**{texts['sentence']}**",
            f"Number: {texts['number']}{once}. Data: {sources}.",
            f"![{finding.question}](images/findings/{finding.name}.svg)",
            f"*Caveat.* {texts['caveat']}",
            f"*What else could explain it?* {texts['rival']} *What rules that out:* {texts['ruled_out']}",
        ]
    if still := [finding for finding in findings if finding.is_open]:
        parts += ["## Not measured yet", "\n".join(f"- {finding.question}" for finding in still)]
    return "\n\n".join(" ".join(part.split(" ")) for part in parts) + "\n"
