"""The faults of a study: their names as workloads, their cells, and the victims next to them."""

from sharebench.core.config_catalogues import WorkloadEntry
from sharebench.core.study_config import StudyConfig
from tenant.contract import FAULTS

MODULE = "fault"
PREFIX = f"{MODULE}-"
# Of the window: there is enough before the fault to compare with, and enough after it to see it pass.
AT_FRACTION = 0.4


def workload_name(kind: str, victim: str) -> str:
    """Name of the cells in which a tenant has this fault next to one that runs `victim`."""
    return f"{PREFIX}{kind}+{victim}"


def fault_kind(workload: str) -> str | None:
    """The kind of fault of the cells with this name, or of a tenant that has it; None for any other."""
    kind = workload.partition("+")[0].removeprefix(PREFIX)
    return kind if workload.startswith(PREFIX) and kind in FAULTS else None


def victim_workloads(config: StudyConfig) -> list[str]:
    """The workloads next to which faults happen: those named, else those of `interference`, else the plain ones."""
    if not config["faults"]:
        return []
    named = config["fault_victims"] or config["interference"] or config["workloads"]
    entries = config["workload_catalogue"]
    # One tenant alone runs a victim, and keeps the timeline that a fault is judged by.
    return sorted(name for name in named if entries[name]["tenants"] is None and entries[name]["kind"] == "loop")


def aggressor_entry(kind: str, like: WorkloadEntry) -> WorkloadEntry:
    """The entry of the tenant that goes wrong; what a loop has no use for is as in `like`."""
    return {
        **like,
        "kind": "loop",
        "tenants": None,
        "job": None,
        "simulated": None,
        "module": MODULE,
        "params": {"kind": kind, "at_fraction": AT_FRACTION},
        "load": {"arrival": "closed", "concurrency": None, "rate_hz": None, "rate_of_capacity": None},
        "output_tolerance": 1,
    }
