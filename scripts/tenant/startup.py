"""From the command line to loaded workloads: the parts of start-up, each timed."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING

from tenant import FIRST_LINE_NS, granted_device, workloads
from tenant.contract import View
from tenant.parameters import ParameterError
from tenant.workload import Workload

if TYPE_CHECKING:
    # It brings numpy along, which is to be imported by the workload, in whose time it counts.
    from tenant.record import Identity


class _Watch:
    def __init__(self) -> None:
        self._begun_ns = time.monotonic_ns()

    def lap_seconds(self) -> float:
        """Since the last lap."""
        before_ns, self._begun_ns = self._begun_ns, time.monotonic_ns()
        return (self._begun_ns - before_ns) / 1e9


def _open_device(device: str) -> View | None:
    """What the process sees of its device, None on a CPU outside of a pod; opens the CUDA context."""
    given = granted_device.view()
    if device == "cuda":
        from tenant.gpu import cuda

        cuda.open_context()
        seen = cuda.view()
        return seen if given is None else {**given, **seen}
    if given is None:
        return None
    from tenant.gpu import nvml

    return nvml.completed(given)


def load(arguments: Namespace) -> list[tuple[Workload, Identity]]:
    """Import the workload, open the device and make one workload per tenant, one after another.

    Raises ParameterError, and whatever the framework does.
    """
    watch = _Watch()
    module = workloads.load_module(arguments.workload, arguments.device)
    import_seconds = watch.lap_seconds()
    from tenant.record import Identity

    watch.lap_seconds()
    view = _open_device(arguments.device)
    context_seconds = watch.lap_seconds() if view is not None else 0.0
    tenants = []
    for number in range(arguments.streams or 1):
        watch.lap_seconds()
        workload = workloads.create(module, arguments.params, arguments.device)
        load_seconds = watch.lap_seconds()
        if arguments.streams and not workload.captured:
            raise ParameterError(
                f"{arguments.workload}: only a captured CUDA graph can run in streams of one process; set graph: true"
            )
        identity = Identity(
            index=arguments.index + number,
            name=arguments.name or arguments.workload,
            process_seconds=(FIRST_LINE_NS - arguments.spawned_ns) / 1e9,
            import_seconds=import_seconds,
            context_seconds=context_seconds,
            load_seconds=load_seconds,
            view=view,
            process_tenants=arguments.streams or 1,
        )
        tenants.append((workload, identity))
    return tenants
