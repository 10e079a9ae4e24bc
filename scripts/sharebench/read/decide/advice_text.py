"""The advice as text, and the rows of tables/advice.csv, which has all columns of the plans."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import pandas as pd

from sharebench.core.console import format_count, wrap_text
from sharebench.model.strategy import Strategy
from sharebench.read.columns import TableRow
from sharebench.read.decide import documented
from sharebench.read.decide.advice import Demand, Option, Plan, advise
from sharebench.read.decide.answers import Answer, PlanLine, verdict_text
from sharebench.read.decide.cost import HOURS_PER_MONTH
from sharebench.read.decide.reasons import KINDS, Kind
from sharebench.read.grouping import group_by
from sharebench.read.slo import LATENCY, format_limits

HOLDS_LABELS = {None: "unknown", True: "yes", False: "no"}
NO_ADVICE = "none: except faults and tests of promises, nothing was run under a strategy that shares"
FAULTS_COUNT = "its faults (tables/isolation.csv) count for a study of loads: advise LOADS FAULTS --isolation fault"


def describe_question(demand: Demand, slo: str) -> str:
    parts = [format_count(demand.tenants, "tenant", "tenants")]
    parts.append(f"SLO {slo}" if slo else "no SLO")
    parts += [] if demand.isolation == "none" else [f"{demand.isolation} isolation"]
    parts += [] if demand.price_per_hour is None else [f"${demand.price_per_hour:g} per GPU and hour"]
    return ", ".join(parts)


def advice_rows(
    workload: str, options: Sequence[Option], demand: Demand, strategies: Mapping[str, Strategy]
) -> Iterator[TableRow]:
    """Rows of tables/advice.csv for one workload, the best first."""
    for rank, plan in enumerate(advise(options, demand), start=1):
        row = {"workload": workload, **_row(plan, demand, strategies[plan.option.strategy])}
        if plan.devices is not None:
            row["rank"] = rank
        yield row


def _row(plan: Plan, demand: Demand, strategy: Strategy) -> TableRow:
    level, price = plan.level, demand.price_per_hour
    fault, performance = plan.option.fault, level.performance if level else documented.performance_isolation(strategy)
    if plan.per_device == 1:
        fault = performance = documented.ALONE
    row: TableRow = {
        "strategy": strategy.name,
        "devices": plan.devices,
        "tenants_per_device": plan.per_device,
        "verdict": verdict_text(plan, demand),
        "performance_isolation": HOLDS_LABELS[performance.holds],
        "performance_isolation_basis": f"{performance.basis}: {performance.text}",
        "fault_isolation": HOLDS_LABELS[fault.holds],
        "fault_isolation_basis": f"{fault.basis}: {fault.text}",
        "effort": documented.effort(strategy)[1],
        "reason": plan.reason,
        "slo_ms": 1e3 * demand.limits[LATENCY] if LATENCY in demand.limits else None,
        "slo": format_limits(demand.limits),
        "tenants": demand.tenants,
        "isolation": demand.isolation,
        "price_per_hour": price,
    }
    if level is None:
        return row
    judged, margin = level.tightest_part(demand), plan.margin_percent(demand)
    return row | {
        "percentile": judged.name,
        "judged_with_tenants": level.replicas,
        "tail_of_tenants": level.tails_of or None,
        **judged.time.times(1e3).columns("latency_ms"),
        **(margin.columns("margin_percent") if margin else {}),
        "throughput_per_device_hz": level.throughput and level.throughput.value,
        "output_tokens_per_device_hz": level.tokens and level.tokens.value,
        "dollars_per_million_tokens": plan.dollars_per_million(level.tokens, demand),
        "dollars_per_million_iterations": plan.dollars_per_million(level.throughput, demand),
        "dollars_per_month": plan.devices and price and plan.devices * price * HOURS_PER_MONTH,
    }


def advice_markdown(answers: Sequence[Answer], caption: str, none: str = NO_ADVICE) -> str:
    """tables/advice.md: an item for each workload with one for each reason, then the tables of strategies.

    `none` stands in place of no answer.
    """
    items = ["\n  - ".join([f"- {each.sentence}", *_reason_lines(each)]) for each in answers]
    tables = [line for each in answers for line in ("", f"{each.workload}:", "", _table(each, "pipe"))]
    return "\n".join([caption, "", *(items or [f"- {none}"]), *tables, ""])


def advice_for_terminal(answers: Sequence[Answer], caption: str, none: str = NO_ADVICE) -> str:
    """A sentence for each workload; of a single one its strategies and the reasons too."""
    lines = [*wrap_text(caption), ""]
    cautions = _by_workloads(answers, "hazard")
    lines += [line for text in cautions for line in wrap_text(text)] + [""] * bool(cautions)
    lines += [line for each in answers for line in wrap_text(each.sentence)] or wrap_text(none)
    if len(answers) > 1:
        lines += [line for text in _by_workloads(answers, "scope") for line in wrap_text(text, "- ")]
    elif answers:
        lines += ["", _table(answers[0], "simple"), ""]
        lines += [line for text in _reason_lines(answers[0], "gain") for line in wrap_text(text, "- ")]
    return "\n".join(lines)


def _by_workloads(answers: Sequence[Answer], kind: Kind) -> list[str]:
    """The reasons of this kind, each once, after the workloads that have it if there are several."""
    found = [(text, each.workload) for each in answers for text in each.texts(kind)]
    names = {text: ", ".join(name for _, name in those) for text, those in group_by(found, itemgetter(0)).items()}
    return [f"{those}: {text}" if len(answers) > 1 else text for text, those in names.items()]


def _reason_lines(answer: Answer, first: Kind = "hazard") -> list[str]:
    """The reasons from this kind on as sentences, all changes in one."""
    changes = [reason.text for reason in answer.reasons if reason.kind == "change"]
    listed = [f"What would change it: {'; '.join(changes)}."] if changes else []
    before, after = answer.texts(*KINDS[KINDS.index(first) : KINDS.index("change")]), answer.texts("certainty")
    return [*before, *listed, *after]


def _table(answer: Answer, style: str) -> str:
    has_price = any(each.dollars for each in answer.plans)
    shown = [
        {
            "strategy": each.strategy,
            "GPUs, tenants": f"{each.devices}, {each.per_device} on each{_measured(each)}" if each.devices else "-",
            "latency (ms)": each.latency or "-",
            "per GPU": each.work or "-",
            **({"$ per million": each.dollars or "-"} if has_price else {}),
            "verdict": "; ".join(filter(None, (each.verdict, each.harm))),
        }
        for each in answer.plans
    ]
    return pd.DataFrame(shown).to_markdown(index=False, tablefmt=style, disable_numparse=True) if shown else ""


def _measured(plan: PlanLine) -> str:
    return f" (as {plan.measured})" if plan.measured > plan.per_device else ""
