"""What a new mechanism needs before a study can ask for it."""

from sharebench.model.capabilities import ACCESS_CAPABILITIES, NODE_KINDS

IN_PODS = {"exclusive", "time-slicing", "mps", "mig"}
ON_A_HOST = {*IN_PODS, "sequential"}
IN_ONE_PROCESS = {"streams", "green-contexts"}
SET_UP = {
    "cpu": ON_A_HOST,
    "nvidia": {*ON_A_HOST, *IN_ONE_PROCESS, "hami-core"},
    "simulated": {*ON_A_HOST, *IN_ONE_PROCESS},
    "device-plugin": IN_PODS,
    "static": IN_PODS,
    "dra": IN_PODS,
}
"""Mechanisms that each kind of node, or access, has code for."""


def test_a_node_offers_only_mechanisms_that_its_code_sets_up() -> None:
    """A mechanism that nothing sets up would be measured as plain sharing under its name."""
    capabilities = {name: kind.capability for name, kind in NODE_KINDS.items() if kind.capability} | ACCESS_CAPABILITIES
    assert {name: set(capability.mechanisms) for name, capability in capabilities.items()} == SET_UP
