"""Faults of a study: their workload names, their cells, and the victims next to them."""

from sharebench.model.study_config import StudyConfig
from sharebench.model.workload import Workload
from tenant.contract import FAULTS

MODULE = "fault"
PREFIX = f"{MODULE}-"
# Fraction of the window that leaves enough time before the fault to compare with, and after it to see it pass.
AT_FRACTION = 0.4


def workload_name(kind: str, victim: str) -> str:
    """Workload name of the cells in which a tenant has this fault next to one that runs `victim`."""
    return f"{PREFIX}{kind}+{victim}"


def fault_kind(workload: str) -> str | None:
    """The kind of fault that a workload name stands for, of a cell or of its aggressor; None for other names."""
    kind = workload.partition("+")[0].removeprefix(PREFIX)
    return kind if workload.startswith(PREFIX) and kind in FAULTS else None


def victim_workloads(config: StudyConfig) -> list[str]:
    """Workloads next to which faults happen: `fault_victims`, else those of `interference`, else of `workloads`."""
    if not config["faults"]:
        return []
    named = config["fault_victims"] or config["interference"] or config["workloads"]
    entries = config["workload_catalogue"]
    # A victim runs in a single tenant, and only a loop has the timeline that a fault is judged by.
    return sorted(name for name in named if entries[name].tenants is None and entries[name].kind == "loop")


def aggressor(kind: str) -> Workload:
    """The workload of the tenant that has this fault."""
    return Workload(
        name=PREFIX + kind, module=MODULE, params={"kind": kind, "at_fraction": AT_FRACTION}, output_tolerance=1
    )
