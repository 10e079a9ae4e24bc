"""User programs as the driver sees them: through our client, which runs next to them on a host as in a pod."""

from collections.abc import Callable
from dataclasses import dataclass

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantsFailed, latency_bucket, own_load_report
from sharebench.measure.nodes.tenants.endpoint import Connect, HttpEndpoint
from sharebench.measure.nodes.tenants.tenant_set import Ending
from sharebench.model.spec import Spec
from sharebench.model.workload import Workload
from tenant.contract import NO_OUTPUTS, CompletedJob, ExitReport, Outputs, Steadiness, TenantReport


@dataclass(frozen=True)
class ObservedProgram:
    """What the launcher knows of a tenant's program.

    `has_printed` is whether its log has a text. `ending` waits for its exit code and returns how it has failed, or
    None. Both may raise NodeError.
    """

    spec: Spec
    index: int
    has_printed: Callable[[str], bool]
    ending: Callable[[], Ending | None]

    @property
    def workload(self) -> Workload:
        return self.spec.workloads[self.index]


class ClientEndpoint(HttpEndpoint):
    """The client next to a user's server, or that of a server elsewhere."""

    window = (0, 0)

    def __init__(self, program: ObservedProgram, port: int, token: str, connect: Connect | None = None) -> None:
        super().__init__(port, token, connect)
        self.program = program

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        self.window = (start_ns, end_ns)
        return super().set_window(start_ns, end_ns, iterations)

    def outputs(self, deadline_seconds: float) -> Outputs:
        """Answers only: there is no digest, since a server's last answer is another each time."""
        return super().outputs(deadline_seconds) | NO_OUTPUTS


class ExitEndpoint(ClientEndpoint):
    """The client next to a program that runs to its end."""

    cpu_seconds = 0.0
    """CPU time of the program, once it has ended."""
    is_running = False
    """Whether it was started, and its client has not seen its end."""

    def outputs(self, deadline_seconds: float) -> Outputs:
        return NO_OUTPUTS

    def steadiness(self, since_ns: int | None) -> Steadiness:
        """Steady at once, since starting is part of the work and there is no warm-up."""
        return {"is_steady": True, "batches": 0, "change_percent": None}

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        if self.window != (0, 0):
            raise NodeError(f"{self.program.workload.name} has begun in a window that a neighbour refused")
        self.is_running = True
        return super().set_window(start_ns, end_ns)

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The record with the program's run time, once all its processes have ended or its deadline is over.

        The time that it took to be started is `start_delay_seconds`. Raises TenantsFailed if the program failed, except
        for lack of memory, which is a result.
        """
        answer: ExitReport = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        started_ns, ended_ns, seconds = answer["started_ns"], answer["ended_ns"], None
        self.is_running = ended_ns is None and not answer["left_running"]
        if ended_ns is None:
            left, after = answer["left_running"], f"{(self.window[1] - self.window[0]) / NS:g} s after its start"
            self.overdue = f"it had not exited {after}"
            if left:
                self.overdue = f"it has exited, but {left} of the processes that it left had not {after}"
        elif (failed := self.program.ending()) is None:
            seconds = (ended_ns - (started_ns or ended_ns)) / NS
        elif failed[0] != "oom":
            raise TenantsFailed("a program did not end well")
        self.cpu_seconds = answer["cpu"]["cpu_seconds"] if answer["cpu"] and not self.is_running else 0.0
        delay_seconds = ((started_ns or self.window[0]) - self.window[0]) / NS
        job: CompletedJob = {
            "iterations": 1,
            "completed": 0 if seconds is None else 1,
            "start_delay_seconds": delay_seconds,
            "completion_seconds": seconds,
        }
        if seconds is not None and answer["left_running"]:
            job["left_running"] = answer["left_running"]
        rate_hz, name = 1 / seconds if seconds else 0.0, self.program.workload.name
        return {
            **own_load_report(self.program.index, name, rate_hz, answer["environment"]),
            "measured_by": "exit",
            "count": job["completed"],
            "sum_seconds": seconds or 0.0,
            "min_seconds": seconds,
            "max_seconds": seconds,
            "histogram": {} if seconds is None else {str(latency_bucket(seconds)): 1},
            "job": job,
            "cpu": answer["cpu"],
            "memory_bytes": answer["memory_bytes"],
            "outside": answer["outside"],
            "view": answer["view"],
        }
