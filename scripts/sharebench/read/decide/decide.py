"""From tables to a decision: cost, capacity and advice of a study."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import pandas as pd

from sharebench.core.console import format_count
from sharebench.core.files import read_json, replace_atomically, write_json
from sharebench.model.capabilities import unsupported_reason
from sharebench.model.question import Deployment, Question
from sharebench.model.records.references import device_name, read_device
from sharebench.model.strategies import all_strategies, is_control, node_strategies
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import StudyConfig, from_json, sweeps_by_entry
from sharebench.read import harm, promises
from sharebench.read.cells.metrics import study_kinds
from sharebench.read.columns import TableRow, csv_text, read_table, table_frame
from sharebench.read.decide import advice_text, documented, elsewhere
from sharebench.read.decide.advice import Demand, Level, Option
from sharebench.read.decide.answers import Answer, answer_question
from sharebench.read.decide.capacity import capacity_table, describe_capacity
from sharebench.read.decide.cost import cost_table
from sharebench.read.decide.device import DeviceLimits, device_limits
from sharebench.read.decide.elsewhere import Known
from sharebench.read.decide.options import Terms, is_alone, known_option, strategy_options
from sharebench.read.decide.reasons import Reason, format_choice
from sharebench.read.decide.relative import jobs_answer, jobs_with_harms, mix_answer
from sharebench.read.decide.rows import (
    DRAM_ACTIVE,
    SM_ACTIVE,
    SummaryRow,
    applying_limits,
    summary_rows,
    with_harms,
    with_longest,
)
from sharebench.read.finished import NoResults
from sharebench.read.grouping import group_by
from sharebench.read.harm import CellKey, Harm
from sharebench.read.over_one import GroupKey, cell_groups, cells_alone, work_ratio
from sharebench.read.quantity import format_quantity
from sharebench.read.slo import LATENCY, format_slo, limits_of, own_limits, slo_limits
from sharebench.read.statistics.intervals import Estimate
from sharebench.study.loads import has_one_load
from sharebench.study.wrong_answers import is_never_wrong

DEPLOYED_WITH: Mapping[Deployment, str] = {"device-plugin": "NVIDIA's device plugin", "claims": "resource claims"}
"""Where all that a host can do cannot be had."""


@dataclass(frozen=True)
class Results:
    root: Path
    config: StudyConfig
    name: str
    is_gpu: bool
    strategies: Mapping[str, Strategy]
    """The strategies that this kind of node supports."""
    queue: str
    """The strategy that runs jobs one after another."""
    device: DeviceLimits
    most_tenants: int
    """The largest number of tenants of a cell."""
    summary: Sequence[SummaryRow]
    """The rows of plain workloads; jobs and promises have tables of their own."""
    mixes: Sequence[SummaryRow]
    """The rows of mixes and pairs, one for each kind of tenant."""
    known: Known
    """What this study and further ones found."""
    has_faults: bool
    """Whether this study tested faults."""
    jobs: pd.DataFrame | None
    """tables/jobs.csv with `harms`, if there is one."""
    over_one: Mapping[GroupKey, Estimate]
    """Throughput of all tenants over that of one exclusive tenant."""

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(row.workload for row in self.summary))

    def is_shared(self, workload: str) -> bool:
        """Whether it was run under a sharing strategy; otherwise there is nothing to choose from."""
        own = (row.strategy for row in self.summary if row.workload == workload)
        return any(name in self.strategies and self.strategies[name].mechanism != ("exclusive",) for name in own)


def read_results(data: Path, root: Path, others: Sequence[Path] = ()) -> Results:
    """Read the tables under `root`, and the node's facts under `data`. Raises NoResults where there are none.

    What `others`, further studies of the same GPU, have measured counts too.
    """
    try:
        manifest = read_json(root / "manifest.json", "config", "node_kind")
        node = read_device(data / "nodes" / "device.json")["node"]
        summary = read_table(root / "tables" / "summary.csv")
    except OSError as error:
        raise NoResults(root, error) from None
    config = from_json(manifest["config"])
    kind = manifest["node_kind"]
    # Older manifests lack `device_units`.
    device = device_limits(node, config, node["units"] or manifest.get("device_units"))
    on_node = node_strategies(config, kind)
    # Leave out the A/A control, and queues, which do not share.
    entries, own = all_strategies(config), [each for each in on_node.values() if not each.is_queue]
    supported = {
        each.name: each
        for each in own
        if not is_control(each.name) and unsupported_reason(kind, entries[each.name], each.access) is None
    }
    tenants, jobs = elsewhere.table(root, "cells"), elsewhere.table(root, "jobs")
    rows = [row for row in summary_rows(summary) if not is_control(row.strategy)]
    harms: Mapping[CellKey, Sequence[Harm]] = {}
    if tenants is not None:
        harms = harm.harms(cast(list[harm.Row], tenants.reindex(columns=harm.COLUMNS).to_dict("records")))
        rows = with_harms(with_longest(rows, tenants), harms)
    workloads = config["workload_catalogue"]
    mixed = {name for name, entry in workloads.items() if entry.tenants is not None}
    mixes = [row for row in rows if "+" in row.workload or row.workload in mixed]
    apart = {name for name, entry in workloads.items() if entry.is_job} | promises.promise_workloads(workloads)
    plain = [row for row in rows if row not in mixes and row.workload not in apart]
    return Results(
        root=root,
        config=config,
        name=device_name(node),
        is_gpu=not node["label"],
        strategies=supported,
        queue=next((name for name, each in on_node.items() if each.is_queue), "sequential"),
        device=device,
        most_tenants=max((row.replicas for row in rows), default=1),
        summary=plain,
        mixes=mixes,
        known=elsewhere.known(root, others, config, plain),
        has_faults=elsewhere.table(root, "isolation") is not None,
        jobs=None if jobs is None else jobs_with_harms(jobs, harms),
        over_one={} if tenants is None else _over_one(tenants, config),
    )


def _over_one(tenants: pd.DataFrame, config: StudyConfig) -> dict[GroupKey, Estimate]:
    groups = cell_groups(tenants, config)
    ratios = {key: work_ratio(own, cells_alone(groups, "exclusive", key[1])) for key, own in groups.items()}
    return {key: ratio for key, ratio in ratios.items() if ratio}


def decide(data: Path, results: Path, question: Question, decided: Path, others: list[Path]) -> str:
    """Write the answer from the tables under `results`, then the marker `decided`, the only file in its folder.

    Returns the advice as text. Raises NoResults.
    """
    text = write_answer(read_results(data, results, others), question)
    shutil.rmtree(decided.parent, ignore_errors=True)
    decided.parent.mkdir(parents=True)
    decided.touch()
    return text


class Answered(NamedTuple):
    """The tables of a decision, by name, and the answer for each workload."""

    tables: Mapping[str, pd.DataFrame]
    answers: Sequence[Answer]
    caption: str
    none: str
    """What is said where there is no answer."""

    def for_terminal(self) -> str:
        return advice_text.advice_for_terminal(self.answers, self.caption, self.none)


def write_answer(results: Results, question: Question) -> str:
    """Write tables/cost.csv, capacity.csv and advice.csv, .md and .json. Returns the advice as text."""
    answered, folder = answer(results, question), results.root / "tables"
    for name, table in answered.tables.items():
        replace_atomically(folder / f"{name}.csv", csv_text(table))
    texts = answered.answers, answered.caption, answered.none
    replace_atomically(folder / "advice.md", advice_text.advice_markdown(*texts))
    answers = [asdict(each) | {"sentence": each.sentence} for each in answered.answers]
    decision = {"caption": answered.caption, "margin_percent": question["margin_percent"], "answers": answers}
    write_json(folder / "advice.json", decision)
    return f"{answered.for_terminal()}\n\nMore columns: {folder / 'advice.csv'}"


def answer(results: Results, question: Question) -> Answered:
    terms = Terms(question["deploy"], question["one_process"])
    slo = limits_of(question["slo"])
    studies = study_kinds({**results.config, "slo": question["slo"]})
    demand = Demand(
        tenants=question["tenants"] or results.most_tenants,
        limits=slo_limits(question["slo"]),
        isolation=question["isolation"],
        price_per_hour=question["price_per_hour"],
        margin_percent=question["margin_percent"],
    )
    cost = cost_table(results.summary, demand.price_per_hour, slo, studies)
    sweeps = sweeps_by_entry(results.config).items()
    levels = {
        workload: name for name, sweep in sweeps for workload in sorted(sweep.values, key=sweep.values.__getitem__)
    }
    capacity = capacity_table(results.summary, slo, results.workloads, levels, studies, results.known.memory)
    rows: list[TableRow] = []
    answers = []
    elsewhere: Mapping[Deployment, Mapping[str, Answer]] = {}
    if results.device.kind == "nvidia" and terms.deploy in ("auto", "host"):
        asked = {deploy: terms._replace(deploy=deploy) for deploy in DEPLOYED_WITH}
        elsewhere = {
            deploy: {each.workload: each for each, *_ in _answers(results, demand, question, other)}
            for deploy, other in asked.items()
        }
    for found, available, own_demand in _answers(results, demand, question, terms):
        rows += advice_text.advice_rows(found.workload, available, own_demand, results.strategies)
        others = {deploy: known[found.workload] for deploy, known in elsewhere.items()}
        reasons = [*found.reasons, *_deployment_reasons(results, found, others)]
        if available:
            reasons += _more_reasons(results, found.workload, slo(found.workload), [*own_demand.limits], capacity)
        answers.append(replace(found, reasons=reasons))
    asked_for = advice_text.describe_question(demand, format_slo(question["slo"]))
    advice = table_frame("advice", rows, studies=studies)
    tables = {"cost": cost, "capacity": capacity, "advice": advice}
    none = f"{advice_text.NO_ADVICE}; {advice_text.FAULTS_COUNT}" if results.has_faults else advice_text.NO_ADVICE
    return Answered(tables, answers, f"Advice for {asked_for}, from {results.name}", none)


def _answers(
    results: Results, demand: Demand, question: Question, terms: Terms
) -> Iterator[tuple[Answer, Sequence[Option], Demand]]:
    """The answers with options and demand of each workload; mixes and jobs have no such options."""
    wanted = question.get("workloads")
    for name in results.workloads:
        if not results.is_shared(name) or not (wanted is None or name in wanted):
            continue
        load = results.config["workload_catalogue"][name].load
        available = strategy_options(
            name,
            results.summary,
            results.strategies,
            results.device,
            results.known,
            load.arrival != "closed",
            terms,
            is_never_wrong(results.config, name),
            one_load=has_one_load(results.config, name),
            over_one=results.over_one,
        )
        own = [row for row in results.summary if row.workload == name]
        own_demand = replace(demand, limits=applying_limits(own, slo_limits(question["slo"], name)))
        yield answer_question(name, available, own_demand, results.is_gpu), available, own_demand
    for each in _relative_answers(results, demand, question, terms):
        yield each, (), demand


def _deployment_reasons(results: Results, found: Answer, others: Mapping[Deployment, Answer]) -> list[Reason]:
    """What a host's answer is where the tenants are deployed otherwise; and what a cluster's `mps` is."""
    if found.strategy not in results.strategies:
        return []
    taken = results.strategies[found.strategy]
    is_plugins = documented.has_limits(taken) and not documented.has_limits(all_strategies(results.config)[taken.name])
    if is_plugins:
        text = f"{taken.name} of a cluster caps each of N tenants at 100/N of the SMs and memory; a host's does not."
        return [Reason("scope", text)]
    differing = [
        f"with {DEPLOYED_WITH[deploy]} (--deploy {deploy}) {_choice_elsewhere(each)}"
        for deploy, each in others.items()
        if each.strategy != found.strategy
    ]
    return [Reason("scope", f"{taken.name} is for a host; {'; '.join(differing)}.")] if differing else []


def _choice_elsewhere(other: Answer) -> str:
    if not other.strategy:
        return "there is no answer"
    choice = format_choice((other.strategy, other.devices))
    but = f" ({other.not_measured} was not measured)" if other.not_measured else ""
    but += harm.caution(other.harm)
    return f"no winner is known; ahead is {choice}{but}" if other.undecided else f"it is {choice}{but}"


def _more_reasons(
    results: Results, workload: str, slo: Mapping[str, float], applying: Collection[str], capacity: pd.DataFrame
) -> list[Reason]:
    """What the tables say besides the plans: capacity, parts of the SLO without effect, warnings."""
    own = [row for row in results.summary if row.workload == workload]
    reasons = []
    if len(applying) < len(slo) and any(row.n for row in own):
        what = "only the latency" if applying else "no part"
        reasons.append(Reason("scope", f"Of the SLO {what} applies to it: it does not stream."))
    elif slo and applying != [LATENCY]:
        reasons += [Reason("scope", text) for text in describe_capacity(capacity, workload)]
    alone: Mapping[str, Estimate] = next((row.metrics for row in own if is_alone(row)), {})
    if results.config["workload_catalogue"][workload].stream and alone.keys() >= {SM_ACTIVE, DRAM_ACTIVE}:
        active, memory = (format_quantity(alone[name].value) for name in (SM_ACTIVE, DRAM_ACTIVE))
        text = f"One alone kept the SMs active for {active} % of the time, and the memory's interface for {memory} %"
        reasons.append(Reason("scope", f"{text}; what it leaves idle can be gained."))
    cells, warnings = (sum(numbers) for numbers in zip(*((row.n, row.warnings) for row in own), strict=True))
    if warnings:
        behind = f"Of the {format_count(cells, 'cell', 'cells')} behind this"
        carry = format_count(warnings, "carries", "carry")
        reasons.append(Reason("certainty", f"{behind}, {carry} a warning."))
    return reasons


def _relative_answers(
    results: Results,
    demand: Demand,
    question: Question,
    terms: Terms,
) -> list[Answer]:
    """The answers for mixes and jobs, which have no SLO but those of the tenants of a mix."""

    def shared(workload: str, strategy: Strategy, levels: Mapping[int, Level]) -> Option:
        return known_option(strategy, levels, results.known, terms, is_never_wrong(results.config, workload))

    wanted = question.get("workloads")
    sharing = {name: each for name, each in results.strategies.items() if each.mechanism != ("exclusive",)}
    limits, alone = own_limits(question["slo"]), [row for row in results.summary if is_alone(row)]
    found = [
        mix_answer(name, rows, sharing, partial(shared, name), demand, results.is_gpu, limits, alone)
        for name, rows in group_by(results.mixes, lambda row: row.workload).items()
        if wanted is None or name in wanted
    ]
    if results.jobs is not None:
        found += [
            jobs_answer(str(name), rows, sharing, results.queue, partial(shared, str(name)), demand, results.is_gpu)
            for name, rows in results.jobs.groupby("workload", sort=False)
            if wanted is None or name in wanted
        ]
    return [each for each in found if each is not None]
