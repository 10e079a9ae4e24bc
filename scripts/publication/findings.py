"""Findings: sentences by people, numbers by the tables, and a check of each that the two agree."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import jinja2
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from publication.numbers import DataSet, NoNumber, Where
from sharebench.core.files import Refusal

SOURCE = Path("docs/findings.yaml")
PAGE = Path("docs/findings.md")
IMAGES = Path("docs/images/findings")
TEXTS = ("number", "sentence", "caveat")
RULED_OUT = {"rival", "cells", "holds", "ruled_out"}
"""Keys of an attack that cells answer; `cells` names them, `holds` has what must be true of them."""
STANDING = {"rival", "stands"}
"""Keys of an attack that nothing published answers."""
Values = Mapping[str, object]
"""What `let` names."""


class Contradicted(Refusal):
    """A finding does not follow from the data, or is not written as one; one line."""


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FigureEntry(Entry):
    """The figure of a finding: one of the study `of`, or `numbers` of `let` by their `labels`."""

    draw: str
    of: str
    workloads: list[str] = []
    title: str = ""
    axis: str = ""
    labels: dict[str, str] = {}


class FindingEntry(Entry):
    name: str
    question: str
    data: list[str]
    let: dict[str, str] = {}
    number: str
    holds: list[str] = Field(min_length=1)
    when: str = "true"
    sentence: str
    figure: FigureEntry
    caveat: str
    attacks: list[dict[str, Any]] = Field(min_length=1)
    """What else could explain it."""


class BlockEntry(Entry):
    """A text between marks whose numbers must hold."""

    let: dict[str, str]
    holds: list[str]
    text: str


class PairEntry(Entry):
    """A published number, and the expression of the one measured here."""

    what: str
    source: str
    theirs: str
    reading_percent: float
    data: list[str]
    ours: str
    note: str


class Source(Entry):
    """docs/findings.yaml; its findings and blocks are parsed one by one, so that a refusal names them."""

    introduction: str
    data: dict[str, list[str]]
    """Alias → data sets, of which the first that is there counts."""
    names: dict[str, str]
    findings: list[dict[str, object]]
    theirs: list[dict[str, object]] = []
    blocks: dict[str, str | dict[str, object]] = {}


Parsed = TypeVar("Parsed", bound=Entry)


def parsed(model: type[Parsed], where: str, entry: object) -> Parsed:
    """An entry of the source. Raises Contradicted, which names the first key that is missing, unknown or wrong."""
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        known = {"missing": f"has no {key}", "extra_forbidden": f"{key} is an unknown key"}
        raise Contradicted(f"{where}: {known.get(first['type'], f'{key}: ' + first['msg'])}") from None


def read_source(path: Path) -> Source:
    """Raises Contradicted when it is not a source."""
    try:
        return parsed(Source, str(SOURCE), yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise Contradicted(f"{SOURCE}: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class Finding:
    entry: FindingEntry
    question: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """Those of TEXTS; empty where the data are not published."""
    numbers: Values = field(default_factory=dict)
    attacks: tuple[Mapping[str, str], ...] = ()
    """What else could explain it, with the texts of RULED_OUT or of STANDING."""

    @property
    def is_open(self) -> bool:
        """Whether its data are not published, so that only the question is known."""
        return not self.texts


def at(strategy: str, workload: str, replicas: int, **more: object) -> Where:
    """The cells of a point of the matrix, as columns of tables/cells.csv."""
    return {"strategy": strategy, "workload": workload, "replicas": replicas, **more}


def times(count: int) -> str:
    """How often: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def at_least(count: int) -> float:
    """The smallest share of cases that gives `count` of `count` with a chance of 5 %: a one-sided 95 % bound."""
    return float(0.05 ** (1 / count))


class Filler:
    """Fills in texts from the published data sets that `data` names; those that are not there are open questions."""

    def __init__(self, source: Source, published: Path, made: Path) -> None:
        self.of: dict[str, DataSet] = {}
        for alias, names in source.data.items():
            if there := [name for name in names if (published / name / "manifest.json").exists()]:
                self.of[alias] = DataSet(there[0], published, made)
        asked = {alias for entry in source.findings for alias in cast(list[str], entry.get("data", ()))}
        if unknown := sorted(asked - source.data.keys()):
            raise Contradicted(f"{SOURCE}: data: {unknown[0]} is not among them, and a finding names it")
        for data in self.of.values():
            if not data.is_of_a_gpu:
                what = data.device["label"] or f"node {data.device['kind']}"
                raise Contradicted(f"{SOURCE}: data: {data.name} was not measured on a GPU ({what}); take it out")
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._environment.globals |= {**self.of, **source.names, "at": at, "times": times, "at_least": at_least}

    def add(self, **functions: Callable[..., object]) -> None:
        self._environment.globals.update(functions)

    def value(self, where: str, expression: str, known: Values) -> Any:
        """The value of an expression. Raises Contradicted where the data do not have it."""

        def evaluated() -> Any:
            found = self._environment.compile_expression(expression, undefined_to_none=False)(**known)
            str(found)  # raises where it is undefined
            return found

        return _of_data(f"{where}: {expression}", evaluated)

    def text(self, where: str, template: str, known: Values | None = None) -> str:
        """A text with its numbers. Raises Contradicted where the data do not have one of them."""
        return _of_data(where, lambda: self._environment.from_string(template).render(known or {}).strip())

    def finding(self, source: Mapping[str, object]) -> Finding:
        """One finding. Raises Contradicted when its number and its sentence do not agree."""
        name = str(source.get("name"))
        entry = parsed(FindingEntry, f"{SOURCE}: {name}", source)
        question = self.text(name, entry.question)
        if any(alias not in self.of for alias in entry.data) or not self.value(name, entry.when, {}):
            return Finding(entry, question)
        known = self.known(name, entry.let, entry.holds)
        attacks = tuple(self._attack(f"{name}: attacks", attack, known) for attack in entry.attacks)
        texts = {key: self.text(name, getattr(entry, key), known) for key in TEXTS}
        if re.search(r"[.!?] ", texts["sentence"]) or not texts["sentence"].endswith("."):
            raise Contradicted(f"{SOURCE}: {name}: sentence: is not one sentence")
        return Finding(entry, question, texts, known, attacks)

    def known(self, where: str, let: Mapping[str, str], holds: list[str]) -> Values:
        """The numbers that `let` names, each of which may use those before it, and of which all claims hold.

        Raises Contradicted.
        """
        found: dict[str, object] = {}
        for key, expression in let.items():
            found[key] = self.value(where, expression, found)
        self.hold(where, holds, found)
        return found

    def hold(self, where: str, claims: list[str], known: Values) -> None:
        """Raise Contradicted for the first claim that is not true of these numbers."""
        for claim in claims:
            if self.value(where, claim, known) is not True:
                numbers = ", ".join(f"{key} is {number}" for key, number in known.items())
                raise Contradicted(f"{SOURCE}: {where}: the data contradict it: not {claim}, {numbers}")

    def block(self, name: str, source: str | Mapping[str, object]) -> str:
        """A text between marks: as it is, or with `let` and `holds` as a finding has them. Raises Contradicted."""
        where = f"block {name}"
        if isinstance(source, str):
            return self.text(where, source)
        entry = parsed(BlockEntry, f"{SOURCE}: {where}", source)
        return self.text(where, entry.text, self.known(where, entry.let, entry.holds))

    def _attack(self, where: str, attack: Mapping[str, Any], known: Values) -> dict[str, str]:
        if attack.keys() not in (RULED_OUT, STANDING):
            raise Contradicted(
                f"{SOURCE}: {where}: has {', '.join(sorted(attack))}; give {', '.join(sorted(RULED_OUT))}, "
                f"or where nothing rules it out {', '.join(sorted(STANDING))}"
            )
        self.hold(where, attack.get("holds", []), known)
        return {key: self.text(where, text, known) for key, text in attack.items() if key != "holds"}


Found = TypeVar("Found")


def _of_data(where: str, evaluate: Callable[[], Found]) -> Found:
    try:
        return evaluate()
    except (NoNumber, jinja2.TemplateError, TypeError, KeyError) as error:
        raise Contradicted(f"{SOURCE}: {where}: {error}") from None


def _attack_line(attack: Mapping[str, str]) -> str:
    if "stands" in attack:
        return f"- *{attack['rival']}* **Not ruled out:** {attack['stands']}"
    return f"- *{attack['rival']}* No ({attack['cells']}): {attack['ruled_out']}"


def page(findings: list[Finding], filler: Filler, introduction: str) -> str:
    """docs/findings.md."""
    parts = ["# Findings", introduction]
    for number, finding in enumerate((each for each in findings if not each.is_open), 1):
        texts = finding.texts
        datasets = {filler.of[alias].name: filler.of[alias] for alias in finding.entry.data}
        sources = ", ".join(f"[{name}](../{data.about})" for name, data in datasets.items())
        once = (
            "" if any(data.repeats > 1 for data in datasets.values()) else " (measured once: no interval over repeats)"
        )
        parts += [
            f"## {number}. {finding.question}",
            f"**{texts['sentence']}**",
            f"![{finding.entry.name}](images/findings/{finding.entry.name}.svg)",
            f"*Measured:* {texts['number']}{once}. *Caveat:* {texts['caveat']} *Data:* {sources}.",
            "\n".join(_attack_line(attack) for attack in finding.attacks),
        ]
    if still := [finding for finding in findings if finding.is_open]:
        parts += ["## Not measured yet", "\n".join(f"- {finding.question}" for finding in still)]
    return "\n\n".join(parts) + "\n"
