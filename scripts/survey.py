"""Find workloads that leave their GPU empty, which of them may fit on one, and write a study of that."""

import signal
import threading
import time
from pathlib import Path

from sharebench.analysis.survey import judge, study, text
from sharebench.cell.prometheus import usage as of_prometheus
from sharebench.cell.prometheus.server import PrometheusUnavailable, Server
from sharebench.core.config_nodes import SurveyOptions
from sharebench.core.console import format_duration
from sharebench.core.files import replace_atomically
from sharebench.figures import survey as figure
from sharebench.figures.page import save
from sharebench.figures.style import theme
from sharebench.nodes.contract import NodeError
from sharebench.nodes.host import usage as of_host
from sharebench.records.usage import ObservedUsage


def seen(options: SurveyOptions) -> ObservedUsage:
    """What Prometheus knows, or what NVML shows until time is up or someone ends it by Ctrl-C."""
    if options["url"] is not None:
        hours = options["hours"] or of_prometheus.HOURS
        server = Server(options["url"], of_prometheus.ANSWER_SECONDS)
        try:
            return of_prometheus.gpu_usage(server, options["labels"], hours, time.time())
        except PrometheusUnavailable as silence:
            raise PrometheusUnavailable(f"{silence}; survey.url is {server.url}") from None
    hours, is_over = options["hours"] or of_host.HOURS, threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    print(
        f"Watching this host's GPUs for {format_duration(3600 * hours)}; Ctrl-C ends it with what was seen", flush=True
    )
    try:
        return of_host.watch_gpus(hours, is_over)
    except NodeError as error:
        raise NodeError(f"{error}; for a cluster set survey.url to its Prometheus: docs/survey.md") from None


def survey(out: Path, options: SurveyOptions) -> str:
    """Write the tables, the figure and the study of what was seen; what is said of it."""
    found = judge.judge_usage(seen(options), options)
    workloads, groups = judge.workload_table(found), judge.group_table(found)
    for name, table in (("workloads", workloads), ("groups", groups)):
        replace_atomically(out / f"{name}.csv", table.to_csv(index=False))
    with theme():
        save(figure.draw(workloads, text.facts(found)), out, "survey")
    said = text.lines(found)
    said.append(f"figure: {out / 'survey.svg'}; tables: {out / 'workloads.csv'}, {out / 'groups.csv'}")
    path = out / "study.yaml"
    path.unlink(missing_ok=True)
    if found.groups:
        replace_atomically(path, study.study_config(found, str(path), f"{out}-study"))
        said.append(f"study: snakemake --cores 1 --configfile {path}")
    replace_atomically(out / "survey.md", "\n".join(said) + "\n")
    return "\n".join(said)
