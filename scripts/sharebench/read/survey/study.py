"""The study that follows a survey: a config file with a stand-in for each workload of its groups."""

import json
import math
from collections.abc import Iterator

from sharebench.model.records.usage import DRAM, SM
from sharebench.read.survey.judge import JudgedWorkload, Survey

# More groups would take hours to measure; the first ones free most GPUs.
MAX_GROUPS = 4
# A workload whose mean while at work reaches it is bound by memory, or fills the SMs.
BOUND_PERCENT = 50.0
# Range of rates of an open load, as a share of capacity; a busier workload gets a closed loop.
MIN_RATE, MAX_RATE = 0.01, 0.9
HEAD = """\
# Written by `sharebench survey`: which of these workloads can share a GPU, and under which strategy?
#
# It measures STAND-INS, not your workloads: each one copies memory, fills the SMs or has small kernels, whichever is
# nearest to what was seen, as often as its workload was at work. Their memory is their own. For a decision replace
# them by your own containers or programs (docs/your-own-workload.md), as the comments below begin to.
# Names of your workloads are in comments alone: nothing of them gets into results.
#
#   sharebench plan --configfile {path}
#   snakemake --cores 1 --configfile {path}

results: {results}
# A GPU of this host, or without one CPU cores. In a cluster write `kubernetes` (docs/cluster/quickstart.md).
node: auto
strategies: [exclusive, time-slicing, mps]
"""
TAIL = """\
repeats: 3
window_seconds: 30
warmup: {max_seconds: 30}
timeouts: {start_seconds: 180, record_seconds: 60}
"""
OWN_CONTAINER = """\
  # Its own container in place of the stand-in, where strategies run in pods. Fill in port and path:
  #   kind: http
  #   image: {image}
  #   port: 8000
  #   request: {{path: /}}
"""
STANDINS = {
    "memory": "module: memcopy\n    params: {mebibytes: 256}",
    "sms": "module: matmul\n    params: {size: 4096, dtype: float32}",
    "small": "module: matmul\n    params: {size: 512, dtype: float64}",
}
STANDIN_LABELS = {
    "memory": "copies of memory, bound by bandwidth",
    "sms": "large matmuls, which fill the SMs",
    "small": "small matmuls, which leave most SMs empty",
}


def standin(judged: JudgedWorkload) -> str:
    """The one of STANDINS that is nearest to the workload while it is at work."""
    at_work = judged.usage.series[judged.activity >= 1]
    if at_work[DRAM].mean() >= BOUND_PERCENT:
        return "memory"
    # Without SM activity it is not known how much of the GPU a kernel fills; assume all of it.
    return "small" if at_work[SM].mean() < BOUND_PERCENT else "sms"


def study_config(survey: Survey, path: str, results: str) -> str:
    """The config file's text for the survey's first groups; there must be at least one."""
    groups = survey.groups[:MAX_GROUPS]
    names = [f"survey-group-{number}" for number in range(1, len(groups) + 1)]
    sizes = sorted({len(group.members) for group in groups})
    # Exclude cells whose number of tenants is not the group's size.
    excluded = [
        f"*/{name}/n{size}"
        for name, group in zip(names, groups, strict=True)
        for size in sizes
        if size != len(group.members)
    ]
    lines = [HEAD.format(path=path, results=results)]
    lines += [f"replicas: {sizes}\n", f"workloads: {json.dumps(names)}\n"]
    lines += [f"exclude: {json.dumps(excluded)}\n"] if excluded else []
    lines += [TAIL, "\nworkload_catalogue:\n"]
    number = 0
    for name, group in zip(names, groups, strict=True):
        names_of_group = []
        for member in group.members:
            number += 1
            names_of_group.append(f"survey-{number}")
            lines += _entry(names_of_group[-1], member)
        lines.append(f"  {name}:\n    description: Stand-ins of group {groups.index(group) + 1} of the survey.\n")
        lines.append(f"    tenants: {json.dumps(names_of_group)}\n")
    return "".join(lines)


def _entry(name: str, judged: JudgedWorkload) -> Iterator[str]:
    kind, ratio = standin(judged), judged.busy_ratio
    memory = "" if math.isnan(judged.memory_mib) else f", {judged.memory_mib / 1024:.1f} GiB"
    yield f"\n  # {printable(judged.name)}: at work {100 * ratio:.0f} % of the time, {activity_text(judged)}{memory}.\n"
    yield f"  {name}:\n"
    yield f"    description: Stand-in for a workload of the survey, {STANDIN_LABELS[kind]}.\n"
    yield f"    {STANDINS[kind]}\n"
    if ratio < MAX_RATE:
        yield f"    load: {{arrival: poisson, rate_of_capacity: {max(MIN_RATE, ratio):.2f}}}\n"
    if judged.usage.image is not None:
        yield OWN_CONTAINER.format(image=printable(judged.usage.image))


def printable(text: str) -> str:
    """A foreign name without characters that would break a comment."""
    return "".join(each if each.isprintable() else "?" for each in text)


def activity_text(judged: JudgedWorkload) -> str:
    """`SM activity 12 % (p95 40 %)`."""
    label = {SM: "SM activity"}.get(judged.measure, judged.measure.removesuffix("_percent"))
    return f"{label} {judged.mean(judged.measure):.0f} % (p95 {judged.p95(judged.measure):.0f} %)"
