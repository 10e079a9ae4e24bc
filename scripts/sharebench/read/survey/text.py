"""A survey as lines for a terminal."""

import math

from sharebench.core import console
from sharebench.model.records.usage import SM
from sharebench.read.survey.judge import GpuUse, Survey, gpu_counts
from sharebench.read.survey.study import activity_text, printable

WITHOUT_SM_ACTIVITY = (
    "{count} of {all} are judged by {measure}, without SM activity: for how long a GPU was in use, not how much of it. "
    "Workloads that use it all the time may leave it empty all the same. {remedy}"
)
REMEDY = "With DCGM_FI_PROF_SM_ACTIVE in dcgm-exporter's list of metrics the survey says more."
MAYBE_SHARED = (
    "Of the pods that share a GPU, dcgm-exporter names one, or all with --kubernetes-virtual-gpus. Whether a node "
    "shares its GPUs is known from kube-state-metrics."
)
MAX_GROUP_LINES = 12


def facts(survey: Survey) -> list[str]:
    """The facts below the title of the figure."""
    measures = sorted({each.measure.removesuffix("_percent") for each in survey.judged if each.usage.workload})
    return [
        f"{survey.seen.source}, {survey.seen.hours:g} h",
        gpu_counts(survey.judged),
        f"activity: {', '.join(measures)}",
    ]


def lines(survey: Survey) -> list[str]:
    """The findings; the first line is the summary."""
    seen, judged = survey.seen, survey.judged
    workloads = [each for each in judged if each.usage.workload is not None]
    candidates = survey.with_verdict(GpuUse.CANDIDATE)
    freed = sum(len(group.members) - 1 for group in survey.groups)
    finding = f"{len(candidates)} of {len(workloads)} workloads leave their GPU empty"
    saving = f"; together they may need {freed} GPUs less" if freed else ", and no two fit on one"
    output = console.wrap_text(
        f"{seen.source}, {seen.hours:g} h, {gpu_counts(judged)}: {finding}{saving if candidates else ''}"
    )
    for number, group in list(enumerate(survey.groups, 1))[:MAX_GROUP_LINES]:
        memory = f"{group.memory_mib / 1024:.0f} of {(group.place.memory_mib or 0) / 1024:.0f} GiB"
        dram = "" if math.isnan(group.dram_mean) else f", memory traffic {group.dram_mean:.0f} %"
        members = " + ".join(f"{printable(each.name)} ({activity_text(each)})" for each in group.members)
        output += console.wrap_text(
            f"{members}: together {group.activity_mean:.0f} % (p95 {group.activity_p95:.0f} %){dram}, {memory}",
            f"  {number}. ",
            "     ",
        )
    if len(survey.groups) > MAX_GROUP_LINES:
        output.append(f"  … and {len(survey.groups) - MAX_GROUP_LINES} groups more in groups.csv")
    for verdict in GpuUse:
        if verdict is not GpuUse.CANDIDATE and (workloads_so_judged := survey.with_verdict(verdict)):
            output += console.wrap_text(f"{verdict.value}: {len(workloads_so_judged)}", "  ", "    ")
    if survey.with_verdict(GpuUse.UNKNOWN):
        output += console.wrap_text(MAYBE_SHARED, "  ", "    ")
    if without_sm_activity := [each for each in workloads if each.measure != SM]:
        measures = " or ".join(sorted({each.measure.removesuffix("_percent") for each in without_sm_activity}))
        remedy = REMEDY if seen.source == "Prometheus" else "On Hopper and later NVML counts it."
        line = WITHOUT_SM_ACTIVITY.format(
            count=len(without_sm_activity), all=len(workloads), measure=measures, remedy=remedy
        )
        output += console.wrap_text(line, "  ", "    ")
    return output
