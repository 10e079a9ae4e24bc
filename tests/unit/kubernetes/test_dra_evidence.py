"""Evidence of claims, item by item: what each one compares, and what contradicts it."""

from collections.abc import Sequence
from typing import Any

import pytest
from unit.kubernetes.objects import UUID, gpu, instance, offered, strategy

from sharebench.measure.nodes.contract import Evidence, Grant
from sharebench.measure.nodes.kubernetes.access.dra import nvidia
from sharebench.measure.nodes.kubernetes.access.dra.evidence import claim_evidence, tenant_evidence
from sharebench.model.strategy import Strategy
from tenant.contract import device_digest

HALVES = [instance("3g.20gb", 1), instance("3g.20gb", 2)]
MIG_MPS, MIG, MPS, PLAIN = (
    strategy(*mechanisms, claim_per=None) for mechanisms in (("mig", "mps"), ("mig",), ("mps",), ("time-slicing",))
)
CONFIG = {"requests": ["part-0"], "opaque": {"driver": nvidia.DRIVER, "parameters": {"uuid": UUID, "kind": "x"}}}
# A field that another order of keys changes nothing of.
SEEN_CONFIG = {"opaque": {"parameters": {"kind": "x", "uuid": UUID}}, "requests": ["part-0"], "source": "FromClaim"}
FOUR = [Grant(index, group) for index, group in enumerate((0, 0, 1, 1))]
READY = {"status": {"readyReplicas": 1}}


def claim(parts: Sequence[str], allocated: Sequence[tuple[str, str]], consumers: int = 4) -> dict[str, Any]:
    """A claim with these requests and pairs of a request and the name of a device."""
    results = [
        {"request": request, "driver": nvidia.DRIVER, "pool": "gpu-node", "device": name} for request, name in allocated
    ]
    return {
        "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": [{"name": name} for name in parts], "config": [CONFIG]}},
        "status": {
            "allocation": {"devices": {"results": results, "config": [SEEN_CONFIG]}},
            "reservedFor": [{"name": str(number)} for number in range(consumers)],
        },
    }


def evidence_of(
    wanted: Strategy, devices: list[dict[str, Any]], claims: list[dict[str, Any]], daemons: Sequence[Any] = ()
) -> Evidence:
    asked = [claim(["part-0", "part-1"], [])]
    return claim_evidence(offered(*devices), asked, claims, daemons, wanted, FOUR)


BOTH = [("part-1", HALVES[1]["name"]), ("part-0", HALVES[0]["name"])]


def test_each_item_of_two_shared_instances_names_what_it_compares() -> None:
    found = evidence_of(MIG_MPS, HALVES, [claim(["part-0", "part-1"], BOTH)], [READY, READY])
    config = {"requests": ["part-0"], "parameters": {"uuid": UUID, "kind": "x"}}
    assert [(each["name"], each["observed"]) for each in found] == [
        ("claims", 1),
        ("reservedFor", 4),
        ("opaque configuration in the allocation", [config]),
        ("requests with a device of the node's slices", ["part-0", "part-1"]),
        ("GPUs of the allocated instances", 1),
        ("MPS control daemons that are ready", 2),
    ]
    assert all(each["holds"] and each["source"] == "API server" for each in found)


@pytest.mark.parametrize(("wanted", "items"), [(MIG, 5), (MPS, 5), (PLAIN, 4)])
def test_daemons_and_parents_are_items_of_their_mechanism_alone(wanted: Strategy, items: int) -> None:
    assert len(evidence_of(wanted, HALVES, [claim(["part-0", "part-1"], BOTH)], [READY, READY])) == items


def test_one_instance_has_no_parent_to_agree_with() -> None:
    one = claim(["part-0"], BOTH[1:], consumers=1)
    found = claim_evidence(offered(*HALVES), [one], [one], (), MIG, FOUR[:1])
    assert [each["name"] for each in found if each["name"].startswith("GPUs")] == []


def refuted(found: Evidence) -> list[str]:
    return [each["name"] for each in found if not each["holds"]]


def test_what_the_api_server_has_otherwise_is_refuted() -> None:
    right = claim(["part-0", "part-1"], BOTH)
    assert refuted(evidence_of(MIG_MPS, HALVES, [right], [READY])) == ["MPS control daemons that are ready"]
    assert refuted(evidence_of(MIG_MPS, HALVES, [right], [READY, {}])) == ["MPS control daemons that are ready"]
    apart = [HALVES[0], instance("3g.20gb", 2, minor=1)]
    on_two = claim(["part-0", "part-1"], [("part-0", apart[0]["name"]), ("part-1", apart[1]["name"])])
    assert refuted(evidence_of(MIG, apart, [on_two])) == ["GPUs of the allocated instances"]
    unknown = claim(["part-0", "part-1"], [BOTH[1], ("part-1", "gpu-9")])
    assert refuted(evidence_of(MIG, HALVES, [unknown])) == ["requests with a device of the node's slices"]
    for number in (0, 2):
        found = evidence_of(MIG, HALVES, [right] * number)
        assert refuted(found) == ["claims"] and len(found) == 1


def report(device: str | None, nodes: Sequence[str]) -> Any:
    return {"view": {"device": device, "nodes": list(nodes), "variables": nvidia.CDI_VARIABLES, "mps_pipe": None}}


GPUS = [gpu(0, "GPU-0"), gpu(1, "GPU-1")]
A, B = (device_digest(f"GPU-{number}") for number in range(2))


def test_tenants_are_grouped_by_what_they_see_and_not_only_counted() -> None:
    """Two groups of two and two devices, but one tenant has the other group's."""
    parts = claim(["part-0", "part-1"], [("part-0", "gpu-0"), ("part-0", "gpu-1"), ("part-1", "gpu-0")])
    seen = [report(each, ("nvidia1", "nvidia0")) for each in (A, A, A, A)]
    seen[2:] = [report(A, ("nvidia0",))] * 2
    found = tenant_evidence([parts], offered(*GPUS), PLAIN, FOUR, seen)
    assert refuted(found) == []
    assert (found[-1]["source"], found[-1]["observed"]) == ("tenants", [[0, 1], [2, 3]])
    seen[1] = report(B, ("nvidia0", "nvidia1"))
    seen[2] = seen[3] = seen[0] | {}
    assert refuted(tenant_evidence([parts], offered(*GPUS), PLAIN, FOUR, seen))[-1] == found[-1]["name"]


@pytest.mark.parametrize("allocated", [[], [("part-0", "gpu-7")]])
def test_a_tenant_whose_device_is_not_known_is_only_grouped(allocated: list[tuple[str, str]]) -> None:
    found = tenant_evidence([claim(["part-0"], allocated)], offered(*GPUS), PLAIN, FOUR[:1], [report(A, ("nvidia0",))])
    assert [each["name"] for each in found] == ["tenants by the device that they have"]


def test_a_tenant_without_cuda_and_a_device_without_a_uuid_give_no_digest() -> None:
    part = claim(["part-0"], [("part-0", "gpu-0")])
    unmade = gpu(0)
    del unmade["attributes"]["uuid"]
    for devices, device in ((GPUS, None), ([unmade], A)):
        found = tenant_evidence([part], offered(*devices), PLAIN, FOUR[:1], [report(device, ("nvidia0",))])
        assert [each["name"] for each in found if each["name"] == "device"] == []
        assert refuted(found) == []


def test_tenants_under_mps_have_a_daemons_pipe() -> None:
    part = claim(["part-0"], [("part-0", "gpu-0")])
    for pipe, broken in (("/mps", []), (None, ["has the pipe of an MPS daemon"])):
        seen = report(device_digest("GPU-0"), ("nvidia0",))
        seen["view"]["mps_pipe"] = pipe
        assert refuted(tenant_evidence([part], offered(*GPUS), MPS, FOUR[:1], [seen])) == broken
