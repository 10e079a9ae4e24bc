"""Find workloads that leave their GPU empty and may fit together on one, and write a study of them."""

import re
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from sharebench.core.console import format_duration
from sharebench.core.files import Refusal, replace_atomically
from sharebench.measure.cell.prometheus import usage as prometheus_usage
from sharebench.measure.cell.prometheus.checked import CheckedServer
from sharebench.measure.cell.prometheus.server import PrometheusUnavailable
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import usage as host_usage
from sharebench.model.records.usage import ObservedUsage
from sharebench.read.columns import csv_text
from sharebench.read.figures import survey as figure
from sharebench.read.figures.page import save
from sharebench.read.figures.style import theme
from sharebench.read.survey import judge, study, text
from sharebench.read.survey.limits import Limits

LABEL = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def observe_usage(url: str | None, labels: Mapping[str, str], hours: float | None) -> ObservedUsage:
    """Usage in the past by the Prometheus at `url`, or from now on by NVML until time is up or Ctrl-C."""
    if url is not None:
        server = CheckedServer(url, prometheus_usage.ANSWER_SECONDS)
        try:
            return prometheus_usage.gpu_usage(server, dict(labels), hours or prometheus_usage.HOURS, time.time())
        except PrometheusUnavailable as error:
            raise PrometheusUnavailable(f"{error}; --url is {server.url}") from None
    hours, is_over = hours or host_usage.HOURS, threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    print(
        f"Watching this host's GPUs for {format_duration(3600 * hours)}; Ctrl-C ends it with what was seen", flush=True
    )
    try:
        return host_usage.watch_gpus(hours, is_over)
    except NodeError as error:
        raise NodeError(f"{error}; for a cluster give the --url of its Prometheus: docs/survey.md") from None


def _problem(url: str | None, labels: Mapping[str, str], limits: Limits) -> str | None:
    if url is None and (labels or limits.namespaces):
        return "--labels and --namespaces have no effect on this host's GPUs; give --url, or leave them out"
    if url is not None and "@" in url:
        return "--url has a name or a password; write it into ~/.netrc, and the URL without it here"
    if url is not None and not url.startswith(("http://", "https://")):
        return f"--url {url}: it is not a URL; write it as http://localhost:9090"
    if unusable := [name for name in labels if not LABEL.fullmatch(name)]:
        return f"--labels {unusable[0]}: it cannot be a label of Prometheus"
    if limits.empty_percent > limits.filled_percent:
        empty, filled = limits.empty_percent, limits.filled_percent
        return f"--empty-percent {empty:g} is above --filled-percent, {filled:g}; make it half of that, so that two fit"
    return None


def survey(out: Path, url: str | None, labels: Mapping[str, str], hours: float | None, limits: Limits) -> str:
    """Write the tables, the figure and the study of the observed usage; returns the summary. Raises Refusal."""
    if problem := _problem(url, labels, limits):
        raise Refusal(problem)
    judged = judge.judge_usage(observe_usage(url, labels, hours), limits)
    workloads, groups = judge.workload_table(judged), judge.group_table(judged)
    for name, table in (("workloads", workloads), ("groups", groups)):
        replace_atomically(out / f"{name}.csv", csv_text(table))
    with theme():
        save(figure.draw(workloads, text.facts(judged)), out, "survey")
    lines = text.lines(judged)
    lines.append(f"figure: {out / 'survey.svg'}; tables: {out / 'workloads.csv'}, {out / 'groups.csv'}")
    path = out / "study.yaml"
    path.unlink(missing_ok=True)
    if judged.groups:
        replace_atomically(path, study.study_config(judged, str(path), f"{out}-study"))
        lines.append(f"study: snakemake --cores 1 --configfile {path}")
    replace_atomically(out / "survey.md", "\n".join(lines) + "\n")
    return "\n".join(lines)
