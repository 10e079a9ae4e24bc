"""What a new mechanism needs before a study can ask for it."""

from typing import get_args

from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.strategy import LIMIT_KEYS, MECHANISMS, Mechanism, Strategy

IN_PODS = {"exclusive", "time-slicing", "mps", "mig"}
ON_A_HOST = {*IN_PODS, "sequential"}
IN_ONE_PROCESS = {"streams", "green-contexts"}
SET_UP = {
    "cpu": ON_A_HOST,
    "nvidia": {*ON_A_HOST, *IN_ONE_PROCESS, "hami-core"},
    "simulated": {*ON_A_HOST, *IN_ONE_PROCESS},
    "kubernetes": IN_PODS,
}
"""Mechanisms that each kind of node has code for."""


def test_a_node_offers_only_mechanisms_that_its_code_sets_up() -> None:
    """A mechanism that nothing sets up would be measured as plain sharing under its name."""
    offered = {kind: {name for name, traits in MECHANISMS.items() if kind in traits.nodes} for kind in NODE_KINDS}
    assert offered == SET_UP


def test_each_mechanism_has_its_traits() -> None:
    assert tuple(MECHANISMS) == get_args(Mechanism)
    keys = {key for traits in MECHANISMS.values() for key in traits.keys}
    assert {*LIMIT_KEYS} <= keys <= {*Strategy.model_fields}, "a limit without a mechanism is refused everywhere"
