"""A tenant's limits under MPS: the environment variables that set them, and the evidence that they were active."""

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import Evidence, item
from sharebench.model.strategy import TenantLimits
from tenant.contract import PROBE_BYTES_VARIABLE, DeviceView

THREADS_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PRIORITY_VARIABLE = "CUDA_MPS_CLIENT_PRIORITY"
CLIENT_VARIABLES = (THREADS_VARIABLE, MEMORY_VARIABLE, PRIORITY_VARIABLE)
# A tenant tries to allocate this much beyond its limit: more than any rounding of the limit.
PROBE_BEYOND_BYTES = 1 << 30
# MPS rounds a share of the SMs down, on the GPUs tested so far to whole TPCs of two SMs.
SM_TOLERANCE = 2


# Evidence of what the limits grant, which a conformance cell keeps as numbers.
SMS, FREE_MEMORY, REFUSED = "SMs", "free memory in bytes", "allocation beyond the limit refused"
GRANTED = (SMS, FREE_MEMORY, REFUSED)


def client_variables(own: TenantLimits, memory_bytes: int | None) -> dict[str, str]:
    """The variables that set a client's own limits, on a device with that memory."""
    limit_bytes = own.memory_bytes(memory_bytes)
    values = {
        THREADS_VARIABLE: None if own.thread_percent is None else f"{own.thread_percent:g}",
        MEMORY_VARIABLE: None if limit_bytes is None else f"0={limit_bytes // MEBIBYTE}M",
        PRIORITY_VARIABLE: None if own.priority is None else str(own.priority),
    }
    return {name: value for name, value in values.items() if value is not None}


def part_sms(own: TenantLimits, sm_count: int) -> int:
    """Most SMs of a tenant's green context, on a device with `sm_count`."""
    return int(sm_count * (100.0 if own.thread_percent is None else own.thread_percent) / 100)


def probe_variables(limit_bytes: int | None) -> dict[str, str]:
    """The variable that makes a tenant try to allocate beyond its memory limit; empty without a limit."""
    return {} if limit_bytes is None else {PROBE_BYTES_VARIABLE: str(limit_bytes + PROBE_BEYOND_BYTES)}


def limits_evidence(
    limits: TenantLimits, sm_count: int | None, memory_bytes: int | None, view: DeviceView | None, source: str
) -> Evidence:
    """Evidence from a tenant's view of a device with these SMs and this memory; None is not compared."""
    threads, evidence = limits.thread_percent, Evidence()
    sms = view and view["sm_count"]
    if sm_count is not None and threads is None:
        evidence.append(item(SMS, sm_count, sms, source))
    elif sm_count is not None and threads is not None:
        share = int(sm_count * threads / 100)
        fits = sms is not None and max(1, share - SM_TOLERANCE) <= sms <= max(SM_TOLERANCE, share)
        evidence.append(item(SMS, f"at most {share} of {sm_count}", sms, source, fits))
    if (limit := limits.memory_bytes(memory_bytes)) is not None:
        free = view and view["memory_free_bytes"]
        fits = free is not None and free <= limit
        evidence.append(item(FREE_MEMORY, f"at most {limit}", free, source, fits))
        evidence.append(item(REFUSED, True, view and view["over_limit_refused"], source))
    return evidence
