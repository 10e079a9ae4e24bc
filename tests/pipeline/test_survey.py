"""`sharebench survey`: of hours in a real Prometheus, and of this host's GPUs, which a mock NVML has."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import mock_nvml
import pytest
import yaml
from pipeline.harness import TIMEOUT_SECONDS, Checkout
from planted_gpus import PROFILING, PROMTOOL, backfill, cluster, metrics
from tables import rows
from watching import MISSING, PROGRAM, prometheus

needs_prometheus = pytest.mark.skipif(PROGRAM is None or PROMTOOL is None, reason=MISSING)
HOURS = 3


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A Prometheus with the samples of the planted cluster, except the metrics of the parameter."""
    folder = tmp_path / "prometheus"
    backfill(folder, metrics(cluster(), time.time(), 60 * HOURS, without=getattr(request, "param", ())))
    with prometheus(folder) as server:
        yield server.url


def survey(checkout: Checkout, url: str, *more: str) -> str:
    return " ".join(checkout.ask("survey", "--url", url, "--hours", str(HOURS), *more).split())


@pytest.mark.prometheus
@needs_prometheus
def test_a_survey_of_a_half_idle_cluster_proposes_a_study(untouched: Checkout, url: str) -> None:
    said = survey(untouched, url)
    assert "3 of 6 workloads leave their GPU empty; together they may need 2 GPUs less" in said
    folder = untouched.results / "survey"
    verdicts = {row["workload"]: row["verdict"] for row in rows(folder / "workloads.csv")}
    assert verdicts == {
        **dict.fromkeys(("team/llm", "team/api", "team/notebook-0"), "leaves its GPU empty"),
        "team/train-0": "uses its GPU",
        **dict.fromkeys(("team/left-0", "team/right-0"), "shares its GPU already"),
        "": "no workload",
    }
    (group,) = rows(folder / "groups.csv")
    assert set(group["workloads"].split(";")) == {"team/llm", "team/api", "team/notebook-0"}
    assert (folder / "survey.svg").exists() and (folder / "survey.md").exists()
    # Only comments of the study name the workloads that its stand-ins replace, and the study can be run unchanged.
    text = (folder / "study.yaml").read_text()
    assert "# team/llm:" in text and "image: vllm/vllm:1" in text
    assert "team" not in yaml.safe_dump(yaml.safe_load(text))
    assert "cells to measure on node" in untouched.plan(study=str(folder / "study.yaml"))
    # A second survey asks Prometheus again.
    assert "no two fit" in survey(untouched, url, "--memory-percent", "10")
    assert not (folder / "study.yaml").exists()


@pytest.mark.prometheus
@needs_prometheus
@pytest.mark.parametrize("url", [PROFILING], indirect=True)
def test_a_survey_of_utilisation_alone_states_its_limits(untouched: Checkout, url: str) -> None:
    said = survey(untouched, url)
    assert "judged by gpu_util, without SM activity" in said and "DCGM_FI_PROF_SM_ACTIVE" in said
    verdicts = {row["workload"]: row["verdict"] for row in rows(untouched.results / "survey/workloads.csv")}
    # The GPU was busy half of the time, though only a third of it.
    assert verdicts["team/llm"] == "uses its GPU" and verdicts["team/api"] == "leaves its GPU empty"


@pytest.mark.prometheus
@needs_prometheus
def test_a_prometheus_without_dcgm_exporter_is_refused_in_one_line(untouched: Checkout, tmp_path: Path) -> None:
    with prometheus(tmp_path / "prometheus") as server:
        said = untouched.ask("survey", "--url", server.url, code=1)
    assert said.startswith("Prometheus has no metric of dcgm-exporter in the last 24 h")
    assert not (untouched.results / "survey").exists()


def test_a_survey_without_a_server_is_refused_in_one_line(untouched: Checkout) -> None:
    said = untouched.ask("survey", "--url", "http://127.0.0.1:9", code=1)
    assert said == "Prometheus does not answer (ConnectionError); --url is http://127.0.0.1:9\n"


def test_a_survey_of_a_host_without_a_gpu_is_refused(untouched: Checkout, tmp_path: Path) -> None:
    library = mock_nvml.build(tmp_path)
    refused = untouched.asking("survey", LD_LIBRARY_PATH=str(library.parent), MOCK_GPUS="0")
    _, said = refused.communicate(timeout=TIMEOUT_SECONDS)
    assert refused.returncode == 1 and "give the --url of its Prometheus" in said


def test_a_survey_writes_its_samples_at_ctrl_c(untouched: Checkout, tmp_path: Path) -> None:
    library = mock_nvml.build(tmp_path)
    (processes := tmp_path / "processes").write_text(f"compute {os.getpid()} 710\n")
    mocked = {"LD_LIBRARY_PATH": str(library.parent), "MOCK_GPUS": "2", "MOCK_GPU_NAME": "NVIDIA H200"}
    for seconds in (2.5, 10, 40):
        watching = untouched.asking("survey", **mocked, MOCK_READINGS="1", MOCK_PROCESSES=str(processes))
        assert watching.stdout and watching.stdout.readline().startswith("Watching this host's GPUs")
        time.sleep(seconds)
        watching.send_signal(signal.SIGINT)
        _, error = watching.communicate(timeout=TIMEOUT_SECONDS)
        assert watching.returncode == 0, error
        busy, idle = rows(untouched.results / "survey/workloads.csv")
        # Activity is the difference of two samples, which a busy machine may not have taken yet.
        if busy["sm_active_mean_percent"]:
            break
    assert busy["workload"].startswith("python") and busy["verdict"] == "seen too shortly"
    assert float(busy["sm_active_mean_percent"]) == pytest.approx(62.5) and float(busy["memory_max_mib"]) == 710
    assert idle["verdict"] == "no workload"
