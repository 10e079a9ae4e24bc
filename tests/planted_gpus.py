"""A fabricated day of a cluster's GPUs, as Prometheus has it from dcgm-exporter and kube-state-metrics."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROMTOOL = shutil.which("promtool")
STEP_SECONDS = 60
PROFILING = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
H200_MIB = 143_771

Course = Callable[[int], float]
"""A ratio by minute."""


def steady(ratio: float) -> Course:
    return lambda minute: ratio


NOTHING = steady(0.0)


def bursts(ratio: float, every: int, minutes: int, shift: int = 0) -> Course:
    """`minutes` of work in every `every`."""
    return lambda minute: ratio if (minute + shift) % every < minutes else 0.0


@dataclass(frozen=True)
class Planted:
    """A GPU and the pod that has it."""

    gpu: str
    pod: str = ""
    sm: Course = NOTHING
    dram: Course = NOTHING
    memory_mib: int = 500
    node: str = "node-a"
    product: str = "NVIDIA H200"
    total_mib: int = H200_MIB
    namespace: str = "team"

    def labels(self) -> dict[str, str]:
        of_pod = {"namespace": self.namespace, "pod": self.pod, "container": "main"} if self.pod else {}
        return {"gpu": self.gpu, "UUID": f"GPU-{self.node}-{self.gpu}", "modelName": self.product} | {
            "Hostname": self.node,
            **of_pod,
        }

    def values(self, minute: int) -> Mapping[str, float]:
        sm, dram = self.sm(minute), self.dram(minute)
        return {
            "DCGM_FI_PROF_SM_ACTIVE": sm,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": min(1.0, 2 * sm),
            "DCGM_FI_PROF_DRAM_ACTIVE": dram,
            "DCGM_FI_DEV_GPU_UTIL": 100.0 if sm else 0.0,
            "DCGM_FI_DEV_FB_USED": self.memory_mib,
            "DCGM_FI_DEV_FB_FREE": self.total_mib - self.memory_mib,
            "DCGM_FI_DEV_POWER_USAGE": 80 + 400 * sm,
        }


def cluster() -> list[Planted]:
    """Three workloads that leave their GPU empty, one that fills it, two on one GPU, and one GPU without any."""
    return [
        Planted("0", "api-6d4cf56db6-x2x5k", bursts(0.6, 10, 1), bursts(0.2, 10, 1), 9000),
        Planted("1", "notebook-0", bursts(0.9, 240, 5), steady(0.01), 30_000),
        Planted("2", "llm-7f9c5d8b4d-ksh2q", bursts(0.3, 4, 2), bursts(0.7, 4, 2), 60_000, node="node-b"),
        Planted("3", "train-0", steady(0.93), steady(0.4), 120_000),
        Planted("4", "left-0", steady(0.1), steady(0.1), 4000),
        Planted("4", "right-0", steady(0.1), steady(0.1), 4000),
        Planted("5"),
    ]


def whole_gpus(planted: list[Planted]) -> dict[str, float]:
    """The GPUs of each node, each of which one pod can have."""
    gpus = {(each.node, each.gpu) for each in planted}
    return {node: sum(node == other for other, _ in gpus) for node, _ in gpus}


def metrics(planted: list[Planted], end_epoch_seconds: float, minutes: int, without: tuple[str, ...] = ()) -> str:
    """OpenMetrics text with timestamps, as promtool reads it."""
    return "\n".join([*_lines(planted, int(end_epoch_seconds), minutes, without), "# EOF\n"])


Series = dict[str, list[tuple[dict[str, str], list[tuple[float, float]]]]]


def series(planted: list[Planted], minutes: int = 240, without: tuple[str, ...] = ()) -> Series:
    """The same courses as Prometheus returns them, by metric."""
    return {
        name: [
            (each.labels(), [(60.0 * minute, each.values(minute)[name]) for minute in range(minutes)])
            for each in planted
        ]
        for name in planted[0].values(0)
        if name not in without
    }


def _lines(planted: list[Planted], end: int, minutes: int, without: tuple[str, ...]) -> Iterator[str]:
    for name in planted[0].values(0):
        if name in without:
            continue
        yield f"# TYPE {name} gauge"
        for each in planted:
            inside = ",".join(f'{key}="{value}"' for key, value in each.labels().items())
            for minute in range(minutes):
                yield f"{name}{{{inside}}} {each.values(minute)[name]} {end - STEP_SECONDS * (minutes - minute)}"
    yield "# TYPE kube_node_status_allocatable gauge"
    for node, count in whole_gpus(planted).items():
        labels = f'node="{node}",resource="nvidia_com_gpu",unit="integer"'
        yield f"kube_node_status_allocatable{{{labels}}} {count} {end - 2 * STEP_SECONDS}"
    yield "# TYPE kube_pod_container info"
    yield (
        'kube_pod_container_info{namespace="team",pod="llm-7f9c5d8b4d-ksh2q",container="main",image="vllm/vllm:1"} 1 '
        f"{end - 2 * STEP_SECONDS}"
    )


def backfill(folder: Path, text: str) -> None:
    """Write the text into the data of the Prometheus that is started next in this folder."""
    folder.mkdir(parents=True)
    (folder / "planted.txt").write_text(text)
    assert PROMTOOL is not None
    command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "planted.txt", "data"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
