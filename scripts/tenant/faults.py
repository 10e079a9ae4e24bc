"""The kinds of faults: what a tenant may do wrong on purpose (workloads/fault.py), for who only needs their names."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A fault: how the tenant's status reads afterwards, and what it does on the stand-in and on a GPU."""

    ends: str
    on_cpu: str
    on_cuda: str


KINDS = {
    "oom": Kind("oom", "takes memory at once, up to a limit (rlimit)", "takes the device's memory at once"),
    "leak": Kind("oom", "takes memory bit by bit, up to a limit (rlimit)", "takes the device's memory bit by bit"),
    "illegal-address": Kind(
        "crashed", "reads address 0 (SIGSEGV)", "a kernel writes to an address that is not its own"
    ),
    "assert": Kind("crashed", "fails an assertion (SIGABRT)", "an assertion fails in a kernel"),
    "killed": Kind("killed", "is killed (SIGKILL)", "is killed (SIGKILL) while a kernel of it runs"),
    "stopped": Kind("hung", "is stopped (SIGSTOP)", "is stopped (SIGSTOP)"),
    "spin": Kind(
        "hung", "spins on its core, beyond the window's end", "its kernel spins on all SMs, beyond the window"
    ),
}
