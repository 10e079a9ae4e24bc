"""How many SMs a device has, where only tenants can say."""

import copy
from typing import Any

import pytest
from unit.factories import record, spec_text

from sharebench.read.cells.gpu_columns import device_units

VIEW = {
    "pid": 7,
    "device": "0123456789abcdef",
    "memory_free_bytes": 1,
    "memory_total_bytes": 2,
    "over_limit_refused": None,
}


def in_pods(mechanisms: list[str], seen: list[int | None], thread_percent: float | None = None) -> dict[str, Any]:
    """A cell on the GPU of a Kubernetes node, whose tenants saw that number of SMs; None for one without a view."""
    made = copy.deepcopy(record(latencies=[[0.005] * 40 for _ in seen], is_gpu=True))
    made["node"] |= {"kind": "kubernetes", "units": None}
    parts = {"profile": "1g", "instances": 2} if "mig" in mechanisms else {}
    made["spec"] = spec_text(strategy={"mechanism": mechanisms} | parts)
    made["limits"]["thread_percent"] = thread_percent
    for tenant, sms in zip(made["tenants"], seen, strict=True):
        tenant["view"] = None if sms is None else VIEW | {"sm_count": sms}
    return made


def test_a_tenant_without_a_limit_sees_all_sms() -> None:
    assert device_units(in_pods(["time-slicing"], [132, 132])) == 132
    assert device_units(in_pods(["mps"], [None, 132])) == 132


@pytest.mark.parametrize(("mechanisms", "thread_percent"), [(["mig"], None), (["mig", "mps"], None), (["mps"], 50.0)])
def test_a_tenant_with_a_limit_does_not_see_all_sms(mechanisms: list[str], thread_percent: float | None) -> None:
    assert device_units(in_pods(mechanisms, [60], thread_percent)) is None


def test_units_come_from_the_node_first_and_are_unknown_without_a_view() -> None:
    assert device_units(in_pods(["exclusive"], [None])) is None
    idle = in_pods(["exclusive"], [132])
    idle["node"]["is_gpu"] = False
    assert device_units(idle) is None, "the tenants of an idle GPU run on cores"
    said = in_pods(["exclusive"], [132])
    said["node"]["units"] = 108
    assert device_units(said) == 108
