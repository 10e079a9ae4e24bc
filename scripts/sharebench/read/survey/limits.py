"""What a survey judges, and the limits by which it does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    namespaces: tuple[str, ...] = ()
    """Namespaces whose workloads are judged; empty takes all."""
    empty_percent: float = 40
    """Largest mean activity, of SMs and of memory, of a workload that leaves its GPU empty: two of them fit below
    `filled_percent`."""
    filled_percent: float = 80
    """Largest sum of the mean activities of workloads on one GPU, of SMs and of memory each; a fifth is left for
    moments in which all have work."""
    memory_percent: float = 90
    """Largest sum of their memory, in percent of the GPU's: each process has a context in addition."""
    tenants: int = 4
    """Most workloads on one GPU. Every workload can be harmed by the faults of all others."""
