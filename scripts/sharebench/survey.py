"""Find workloads that leave their GPU empty and may fit together on one, and write a study of them."""

import signal
import threading
import time
from pathlib import Path

from sharebench.core.console import format_duration
from sharebench.core.files import replace_atomically
from sharebench.measure.cell.prometheus import usage as prometheus_usage
from sharebench.measure.cell.prometheus.server import PrometheusUnavailable, Server
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import usage as host_usage
from sharebench.model.question import SurveyOptions
from sharebench.model.records.usage import ObservedUsage
from sharebench.read.columns import csv_text
from sharebench.read.figures import survey as figure
from sharebench.read.figures.page import save
from sharebench.read.figures.style import theme
from sharebench.read.survey import judge, study, text


def observe_usage(options: SurveyOptions) -> ObservedUsage:
    """Usage in the past by Prometheus, or from now on by NVML until time is up or Ctrl-C."""
    if options["url"] is not None:
        hours = options["hours"] or prometheus_usage.HOURS
        server = Server(options["url"], prometheus_usage.ANSWER_SECONDS)
        try:
            return prometheus_usage.gpu_usage(server, options["labels"], hours, time.time())
        except PrometheusUnavailable as error:
            raise PrometheusUnavailable(f"{error}; survey.url is {server.url}") from None
    hours, is_over = options["hours"] or host_usage.HOURS, threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    print(
        f"Watching this host's GPUs for {format_duration(3600 * hours)}; Ctrl-C ends it with what was seen", flush=True
    )
    try:
        return host_usage.watch_gpus(hours, is_over)
    except NodeError as error:
        raise NodeError(f"{error}; for a cluster set survey.url to its Prometheus: docs/survey.md") from None


def survey(out: Path, options: SurveyOptions) -> str:
    """Write the tables, the figure and the study of the observed usage; returns the summary."""
    judged = judge.judge_usage(observe_usage(options), options)
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
