"""Findings: sentences by people, numbers by the tables, and a check beside each that they say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from publication.numbers import DataSet, NoNumber

SOURCE = Path("docs/findings.yaml")
PAGE = Path("docs/findings.md")
IMAGES = Path("docs/images/findings")
KEYS = {"name", "question", "data", "let", "number", "holds", "when", "sentence", "figure", "caveat", "attacks"}
TEXTS = ("number", "sentence", "caveat")
RULED_OUT = {"rival", "cells", "holds", "ruled_out"}
"""What an attack has that cells answer; `cells` says which, `holds` what must be true of them."""
STANDING = {"rival", "stands"}
"""What an attack has that nothing published answers."""


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
    attacks: tuple[Mapping[str, str], ...] = ()
    """What else could explain it, with the texts of RULED_OUT or of STANDING."""
    is_open: bool = False
    data: tuple[str, ...] = ()


def at(strategy: str, workload: str, replicas: int, **more: Any) -> dict[str, Any]:
    """The cells of a point of the matrix, as columns of tables/cells.csv."""
    return {"strategy": strategy, "workload": workload, "replicas": replicas, **more}


def times(count: int) -> str:
    """How often, in words: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def at_least(count: int) -> float:
    """The smallest share of cases that gives `count` of `count` with a chance of 5 %: a one-sided 95 % bound."""
    return float(0.05 ** (1 / count))


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
        self._environment.globals.update(at=at, times=times, at_least=at_least)

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
        if missing := KEYS - {"let", "when"} - entry.keys():
            raise Contradicted(f"{SOURCE}: {name}: has no {sorted(missing)[0]}")
        if unknown := entry.keys() - KEYS:
            raise Contradicted(f"{SOURCE}: {name}: {sorted(unknown)[0]} is an unknown key")
        aliases, question = tuple(entry["data"]), self.text(name, entry["question"])
        if any(alias not in self.of for alias in aliases) or not self.value(name, entry.get("when", "true"), {}):
            return Finding(name, question, is_open=True, data=aliases)
        known = self.known(name, entry.get("let", {}))
        if not entry["holds"]:
            raise Contradicted(f"{SOURCE}: {name}: holds is empty; say what must be true of the number")
        self.hold(name, entry["holds"], known)
        if not entry["attacks"]:
            raise Contradicted(f"{SOURCE}: {name}: attacks is empty; say what else could explain it")
        attacks = tuple(self._attack(f"{name}: attacks", attack, known) for attack in entry["attacks"])
        texts = {key: self.text(name, entry[key], known) for key in TEXTS}
        if re.search(r"[.!?] ", texts["sentence"]) or not texts["sentence"].endswith("."):
            raise Contradicted(f"{SOURCE}: {name}: sentence: is not one sentence")
        return Finding(name, question, texts, entry["figure"], known, attacks, data=aliases)

    def known(self, where: str, let: Mapping[str, str]) -> dict[str, Any]:
        """The numbers that `let` names, each of which may use those before it. Raises Contradicted."""
        found: dict[str, Any] = {}
        for key, expression in let.items():
            found[key] = self.value(where, expression, found)
        return found

    def hold(self, where: str, claims: list[str], known: Mapping[str, Any]) -> None:
        """Raise Contradicted for the first claim that is not true of these numbers."""
        for claim in claims:
            if self.value(where, claim, known) is not True:
                numbers = ", ".join(f"{key} is {number}" for key, number in known.items())
                raise Contradicted(f"{SOURCE}: {where}: the data contradict it: not {claim}, {numbers}")

    def block(self, name: str, entry: str | Mapping[str, Any]) -> str:
        """A text between marks: as it is, or with `let` and `holds` as a finding has them. Raises Contradicted."""
        where = f"block {name}"
        if isinstance(entry, str):
            return self.text(where, entry)
        if odd := sorted(entry.keys() ^ {"let", "holds", "text"}):
            raise Contradicted(f"{SOURCE}: {where}: {odd[0]} is missing or an unknown key; it has let, holds and text")
        known = self.known(where, entry["let"])
        self.hold(where, entry["holds"], known)
        return self.text(where, entry["text"], known)

    def _attack(self, where: str, attack: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, str]:
        if attack.keys() not in (RULED_OUT, STANDING):
            raise Contradicted(
                f"{SOURCE}: {where}: has {', '.join(sorted(attack))}; give {', '.join(sorted(RULED_OUT))}, "
                f"or where nothing rules it out {', '.join(sorted(STANDING))}"
            )
        self.hold(where, attack.get("holds", []), known)
        return {key: self.text(where, text, known) for key, text in attack.items() if key != "holds"}


def _attack_in_words(attack: Mapping[str, str]) -> str:
    if "stands" in attack:
        return f"| {attack['rival']} | **Not ruled out:** {attack['stands']} |"
    return f"| {attack['rival']} | No ({attack['cells']}): {attack['ruled_out']} |"


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
            f"![{finding.question}](images/findings/{finding.name}.svg)",
            f"*Measured:* {texts['number']}{once}. *Caveat:* {texts['caveat']} *Data:* {sources}.",
            "\n".join(
                ("| could it be … | answer |", "|---|---|", *(_attack_in_words(attack) for attack in finding.attacks))
            ),
        ]
    if still := [finding for finding in findings if finding.is_open]:
        parts += ["## Not measured yet", "\n".join(f"- {finding.question}" for finding in still)]
    return "\n\n".join(" ".join(part.split(" ")) for part in parts) + "\n"
