"""Findings: people write the sentences, the tables give the numbers, and claims check that the two agree."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import jinja2
import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from publication.numbers import DataSet, MissingNumber, RowFilter
from sharebench.core.files import Refusal

SOURCE_FILE = Path("docs/findings.yaml")
PAGE_FILE = Path("docs/findings.md")
IMAGE_FOLDER = Path("docs/images/findings")
TEXT_KEYS = ("number", "sentence", "caveat")
RULED_OUT_KEYS = {"rival", "cells", "holds", "ruled_out"}
"""Keys of an attack that cells rule out; `cells` names them, `holds` has claims about them."""
OPEN_KEYS = {"rival", "stands"}
"""Keys of an attack that no published cell rules out."""
Values = Mapping[str, object]
"""Name in `let` → its value."""


class Contradicted(Refusal):
    """A finding is malformed, or does not follow from the data; one line."""


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FigureEntry(Entry):
    """The figure of a finding: one of the study `of`, or `numbers`, which draws those of `let` in `labels`."""

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
    """Rival explanations."""


class BlockEntry(Entry):
    """A text between marks, with claims that must hold."""

    let: dict[str, str]
    holds: list[str]
    text: str


class PublishedRatioEntry(Entry):
    """A ratio published by others, and the expression for our measurement of the same."""

    what: str
    source: str
    theirs: str
    reading_percent: float
    data: list[str]
    ours: str
    note: str


class Source(Entry):
    """docs/findings.yaml. Findings and blocks are parsed one by one, so that an error names them."""

    introduction: str
    data: dict[str, list[str]]
    """Alias → data sets; the first that is published counts."""
    names: dict[str, str]
    findings: list[dict[str, object]]
    theirs: list[dict[str, object]] = []
    blocks: dict[str, str | dict[str, object]] = {}


Parsed = TypeVar("Parsed", bound=Entry)


def parse_entry(model: type[Parsed], where: str, entry: object) -> Parsed:
    """Parse an entry. Raises Contradicted, which names the first key that is missing, unknown or wrong."""
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        reasons = {"missing": f"has no {key}", "extra_forbidden": f"{key} is an unknown key"}
        raise Contradicted(f"{where}: {reasons.get(first['type'], f'{key}: ' + first['msg'])}") from None


def read_source(root: Path) -> Source:
    """Parse docs/findings.yaml. Raises Contradicted where it is malformed."""
    try:
        return parse_entry(Source, str(SOURCE_FILE), yaml.safe_load((root / SOURCE_FILE).read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise Contradicted(f"{SOURCE_FILE}: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class Finding:
    entry: FindingEntry
    question: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """Text by TEXT_KEYS; empty where the data are not published."""
    numbers: Values = field(default_factory=dict)
    attacks: tuple[Mapping[str, str], ...] = ()
    """Rival explanations, each with the texts of RULED_OUT_KEYS or of OPEN_KEYS."""

    @property
    def is_open(self) -> bool:
        """Whether only the question is known, because the data are not published."""
        return not self.texts


def group(strategy: str, workload: str, replicas: int, **more: object) -> RowFilter:
    """A filter for the cells of one point of the matrix, by columns of tables/cells.csv."""
    return {"strategy": strategy, "workload": workload, "replicas": replicas, **more}


def format_times(count: int) -> str:
    """`once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def lower_bound_share(count: int) -> float:
    """The one-sided 95 % lower bound of a share that was observed as `count` of `count`."""
    return float(0.05 ** (1 / count))


class Neighbours(NamedTuple):
    """Of the neighbours of faults, how many died."""

    died: int
    seen: int

    def __str__(self) -> str:
        return f"{self.died} of {self.seen}"


def neighbours(data_sets: Sequence[DataSet], strategy: str, *kinds: str) -> Neighbours:
    """Those of faults of these kinds, or of all, in tables/isolation.csv. Raises MissingNumber without any."""
    rows = pd.concat([each.table("isolation") for each in data_sets])
    found = rows[(rows["strategy"] == strategy) & (rows["fault"].isin(kinds) if kinds else True)]
    if found.empty:
        names = ", ".join(each.name for each in data_sets)
        raise MissingNumber(f"{names}: no fault {', '.join(kinds)} under {strategy}")
    return Neighbours(round(found["failed"].sum()), round(found["n"].sum()))


class Filler:
    """Fills in texts from published data sets. Findings whose data are not published stay open questions."""

    def __init__(self, source: Source, published: Path, rebuilt: Path) -> None:
        self.data_sets: dict[str, DataSet] = {}
        for alias, names in source.data.items():
            if present := [name for name in names if (published / name / "manifest.json").exists()]:
                self.data_sets[alias] = DataSet(present[0], published, rebuilt)
        named = {alias for entry in source.findings for alias in cast(list[str], entry.get("data", ()))}
        if unknown := sorted(named - source.data.keys()):
            raise Contradicted(f"{SOURCE_FILE}: data: {unknown[0]} is not among them, and a finding names it")
        for data in self.data_sets.values():
            if not data.is_of_a_gpu:
                what = data.device["label"] or f"node {data.device['kind']}"
                raise Contradicted(f"{SOURCE_FILE}: data: {data.name} was not measured on a GPU ({what}); take it out")
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._environment.globals |= {**self.data_sets, **source.names, "group": group}
        self.add_functions(format_times=format_times, lower_bound_share=lower_bound_share, neighbours=neighbours)

    def add_functions(self, **functions: Callable[..., object]) -> None:
        self._environment.globals.update(functions)

    def evaluate(self, where: str, expression: str, known: Values) -> Any:
        """The value of an expression. Raises Contradicted where the data lack it."""
        with _refuse_missing(f"{where}: {expression}"):
            result = self._environment.compile_expression(expression, undefined_to_none=False)(**known)
            str(result)  # raises where it is undefined
            return result

    def render(self, where: str, template: str, known: Values | None = None) -> str:
        """A text with its numbers filled in. Raises Contradicted where the data lack one of them."""
        with _refuse_missing(where):
            return self._environment.from_string(template).render(known or {}).strip()

    def fill_finding(self, source: Mapping[str, object]) -> Finding:
        """Fill in one finding. Raises Contradicted where it is malformed or a claim does not hold."""
        name = str(source.get("name"))
        entry = parse_entry(FindingEntry, f"{SOURCE_FILE}: {name}", source)
        question = self.render(name, entry.question)
        if any(alias not in self.data_sets for alias in entry.data) or not self.evaluate(name, entry.when, {}):
            return Finding(entry, question)
        known = self.evaluate_let(name, entry.let, entry.holds)
        attacks = tuple(self._attack(f"{name}: attacks", attack, known) for attack in entry.attacks)
        texts = {key: self.render(name, getattr(entry, key), known) for key in TEXT_KEYS}
        if re.search(r"[.!?] ", texts["sentence"]) or not texts["sentence"].endswith("."):
            raise Contradicted(f"{SOURCE_FILE}: {name}: sentence: is not one sentence")
        return Finding(entry, question, texts, known, attacks)

    def evaluate_let(self, where: str, let: Mapping[str, str], holds: list[str]) -> Values:
        """The values of `let`, which may use those before them. Raises Contradicted where a claim does not hold."""
        found: dict[str, object] = {}
        for key, expression in let.items():
            found[key] = self.evaluate(where, expression, found)
        self.check_claims(where, holds, found)
        return found

    def check_claims(self, where: str, claims: list[str], known: Values) -> None:
        """Raise Contradicted for the first claim that is false."""
        for claim in claims:
            if self.evaluate(where, claim, known) is not True:
                numbers = ", ".join(f"{key} is {number}" for key, number in known.items())
                raise Contradicted(f"{SOURCE_FILE}: {where}: the data contradict it: not {claim}, {numbers}")

    def fill_block(self, name: str, source: str | Mapping[str, object]) -> str:
        """Fill in a text between marks, which may have `let` and `holds` as a finding has. Raises Contradicted."""
        where = f"block {name}"
        if isinstance(source, str):
            return self.render(where, source)
        entry = parse_entry(BlockEntry, f"{SOURCE_FILE}: {where}", source)
        return self.render(where, entry.text, self.evaluate_let(where, entry.let, entry.holds))

    def _attack(self, where: str, attack: Mapping[str, Any], known: Values) -> dict[str, str]:
        if attack.keys() not in (RULED_OUT_KEYS, OPEN_KEYS):
            raise Contradicted(
                f"{SOURCE_FILE}: {where}: has {', '.join(sorted(attack))}; give {', '.join(sorted(RULED_OUT_KEYS))}, "
                f"or where nothing rules it out {', '.join(sorted(OPEN_KEYS))}"
            )
        self.check_claims(where, attack.get("holds", []), known)
        return {key: self.render(where, text, known) for key, text in attack.items() if key != "holds"}


@contextmanager
def _refuse_missing(where: str) -> Iterator[None]:
    try:
        yield
    except (MissingNumber, jinja2.TemplateError, TypeError, KeyError) as error:
        raise Contradicted(f"{SOURCE_FILE}: {where}: {error}") from None


def _attack_line(attack: Mapping[str, str]) -> str:
    if "stands" in attack:
        return f"- *{attack['rival']}* **Not ruled out:** {attack['stands']}"
    return f"- *{attack['rival']}* No ({attack['cells']}): {attack['ruled_out']}"


def findings_page(findings: list[Finding], filler: Filler, introduction: str) -> str:
    """The text of docs/findings.md, without the comparison with published numbers."""
    parts = ["# Findings", introduction]
    for number, finding in enumerate((each for each in findings if not each.is_open), 1):
        texts = finding.texts
        datasets = {filler.data_sets[alias].name: filler.data_sets[alias] for alias in finding.entry.data}
        sources = ", ".join(f"[{name}](../{data.readme})" for name, data in datasets.items())
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
    if open_findings := [finding for finding in findings if finding.is_open]:
        parts += ["## Not measured yet", "\n".join(f"- {finding.question}" for finding in open_findings)]
    return "\n\n".join(parts) + "\n"
