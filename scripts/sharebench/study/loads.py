"""Loads that several servers carry together, and the one server that carries as much alone."""

from sharebench.model.study_config import StudyConfig


def has_one_load(config: StudyConfig, workload: str) -> bool:
    """Whether its tenants are replicas, which carry one load together."""
    entry = config["workload_catalogue"].get(workload)
    return entry is not None and (entry.load.rate_for == "all" or entry.load.concurrency_total is not None)


def family(config: StudyConfig, workload: str) -> str:
    """The entry of a sweep, or the workload itself."""
    sweep = config["workload_catalogue"][workload].sweep
    return sweep.of if sweep else workload


def requests_in_flight(config: StudyConfig, workload: str, servers: int) -> int | None:
    """The closed load of `servers` of a workload together; None where it is not a server that streams."""
    entry = config["workload_catalogue"].get(workload)
    if entry is None or entry.tenants is not None or not entry.stream or entry.load.arrival != "closed":
        return None
    return entry.load.concurrency_total or (entry.load.concurrency or 1) * servers


def one_server(config: StudyConfig, workload: str, servers: int) -> str | None:
    """The workload of the same family of which one has the load that `servers` of this one have together."""
    if (load := requests_in_flight(config, workload, servers)) is None:
        return None
    same = (name for name in config["workloads"] if family(config, name) == family(config, workload))
    return next((name for name in same if requests_in_flight(config, name, 1) == load), None)


def compares_servers(config: StudyConfig) -> bool:
    """Whether servers that stream are measured next to one server with their load."""
    return any(
        config["baseline"] != "none" and one_server(config, name, n)
        for name in config["workloads"]
        for n in config["replicas"]
        if n > 1
    )
