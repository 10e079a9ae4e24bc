"""Our keys in the plugin's ConfigMap."""

from __future__ import annotations

import pytest
import yaml

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.access.device_plugin import keys

PLAIN = "version: v1\n"


@pytest.mark.parametrize(
    ("mechanism", "replicas", "most", "key", "count"),
    [
        ("exclusive", 1, 1, "sharebench-exclusive", 1),
        # the largest serves all, and the plugin takes no fewer than two
        ("time-slicing", 3, 7, "sharebench-ts-7", 7),
        ("time-slicing", 1, 1, "sharebench-ts-2", 2),
        # one for each number
        ("mps", 3, 7, "sharebench-mps-3", 3),
    ],
)
def test_key(mechanism: str, replicas: int, most: int, key: str, count: int) -> None:
    strategy = Strategy(mechanism, (mechanism,), None, None, None, None, None)
    assert keys.key_of(strategy, replicas, most) == (key, count)


@pytest.mark.parametrize(
    ("key", "mechanism"),
    [("sharebench-exclusive", "none"), ("sharebench-ts-7", "time-slicing"), ("sharebench-mps-3", "mps")],
)
def test_what_the_labels_call_it(key: str, mechanism: str) -> None:
    assert keys.mechanism_of(key) == mechanism


@pytest.mark.parametrize(
    ("is_single", "replicas", "key", "resources"),
    [
        (False, 1, "sharebench-mig-mixed", None),
        (True, 1, "sharebench-mig-single", None),
        (
            False,
            4,
            "sharebench-mig-mixed-ts-4-3g.20gb-1g.5gb.me",
            ["nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me"],
        ),
        (True, 4, "sharebench-mig-single-ts-4", ["nvidia.com/gpu"]),
    ],
)
def test_instances(is_single: bool, replicas: int, key: str, resources: list[str] | None) -> None:
    assert keys.mig_key(is_single, replicas, ["3g.20gb", "1g.5gb+me", "3g.20gb"]) == key
    config = yaml.safe_load(keys.render(key, "flags: {migStrategy: none, failOnInitError: false}"))
    assert config["flags"] == {"migStrategy": "single" if is_single else "mixed", "failOnInitError": False}
    assert keys.mechanism_of(key) == ("time-slicing" if resources else "none")
    shared = config.get("sharing", {}).get("timeSlicing", {}).get("resources")
    assert shared == (resources and [{"name": name, "replicas": replicas} for name in resources])


def test_mps_is_not_asked_for_beside_instances_of_many_profiles() -> None:
    # the plugin refuses to start, also where no GPU is cut
    config = yaml.safe_load(keys.render("sharebench-mps-3", "flags: {migStrategy: mixed}"))
    assert config["flags"] == {"migStrategy": "none"}


def test_exclusive_has_no_sharing() -> None:
    # the plugin refuses replicas: 1
    assert yaml.safe_load(keys.render("sharebench-exclusive", PLAIN)) == {"version": "v1"}


@pytest.mark.parametrize(("key", "section"), [("sharebench-ts-7", "timeSlicing"), ("sharebench-mps-7", "mps")])
def test_sharing(key: str, section: str) -> None:
    sharing = yaml.safe_load(keys.render(key, PLAIN))["sharing"]
    resources = [{"name": "nvidia.com/gpu", "replicas": 7}]
    assert sharing == {section: {"renameByDefault": False, "resources": resources}}


def test_the_flags_in_force_are_kept_and_their_sharing_is_not() -> None:
    flags = {"migStrategy": "single", "plugin": {"deviceListStrategy": ["cdi-cri"]}}
    base = yaml.safe_dump({"version": "v1", "flags": flags, "sharing": {"mps": {"resources": []}}})
    config = yaml.safe_load(keys.render("sharebench-ts-3", base, packed=True))
    assert config["flags"] == {
        "migStrategy": "single",
        "plugin": {"deviceListStrategy": ["cdi-cri"], "sharedDevicesAllocationPolicy": "packed"},
    }
    assert list(config["sharing"]) == ["timeSlicing"]
