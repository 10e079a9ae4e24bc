"""The claims of each strategy."""

import re
from typing import Any

import pytest
from unit.kubernetes.objects import gpu, in_slice, instance, offered, owner, strategy
from unit.kubernetes.test_dra import driver_set
from unit.studies import S, config_with

from sharebench.measure.nodes.kubernetes.access.dra import claims, nvidia
from sharebench.measure.nodes.kubernetes.access.dra.nvidia import InstalledDriver
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.model.config.load import load
from sharebench.model.strategy import Strategy
from sharebench.study.study import Study

WHOLE = offered(gpu())
SEVEN = offered(*(instance("1g.5gb", number) for number in range(7, 14)))
BIG = offered(instance("3g.20gb", 1, memory="20Gi"), instance("3g.20gb", 2, memory="20Gi"))


def parts(devices: list[DraDevice], wanted: Strategy, replicas: int) -> list[claims.DeviceGroup]:
    """The device groups of the strategy."""
    found = claims.select_devices(devices, wanted, replicas)
    assert not isinstance(found, str), found
    return found


def devices_of(wanted: Strategy, replicas: int, devices: list[Any]) -> dict[str, Any]:
    """`spec.devices` of the strategy's claim."""
    (claim,) = claims.build_claims(wanted, parts(devices, wanted, replicas))
    made: dict[str, Any] = claim["spec"]["devices"]
    return made


def sharing(made: dict[str, Any]) -> list[Any]:
    return [each["opaque"]["parameters"]["sharing"] for each in made["config"]]


def test_an_instances_memory_limit_is_a_share_of_its_own_memory() -> None:
    """Each instance has a daemon, and so each request has a config."""
    limited = strategy("mig", "mps", profile="3g", instances=2, thread_percent=50.0, memory_percent=50.0)
    made = devices_of(limited, 6, BIG)
    assert [each["requests"] for each in made["config"]] == [["part-0"], ["part-1"]]
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10240Mi"}
    assert sharing(made) == [{"strategy": "MPS", "mpsConfig": limits}] * 2


def test_the_drivers_limits_are_those_of_the_record() -> None:
    given = config_with({"node": "kubernetes", "kubernetes.access": "dra", "strategies": ["mps", "mps-limited-200"]})
    of_study = Study(load(given))
    assert of_study.strategies["mps"].limits(3)["thread_percent"] is None
    assert [of_study.strategies["mps-limited-200"].limits(n)["thread_percent"] for n in (1, 3, 7)] == [
        100.0,
        66.0,
        28.0,
    ]


def test_instances_come_from_the_gpu_that_is_used_whole() -> None:
    """Whatever the order of UUIDs, only placements of the first GPU match the GPU of the other cells."""
    places = [instance("1g.5gb", 0, minor, is_made=False) for minor in (0, 1)]
    places[0]["attributes"]["parentUUID"], places[1]["attributes"]["parentUUID"] = {"string": "Z"}, {"string": "A"}
    both = offered(gpu(1, "A"), gpu(0, "Z"), *places)
    ((whole,),), ((part,),) = (parts(both, wanted, 1) for wanted in (PLAIN, strategy("mig", profile="1g")))
    assert nvidia.device_uuid(whole) == nvidia.parent_uuid(part) == "Z"


def test_only_this_nodes_newest_slice_generation_counts() -> None:
    old, new, other = in_slice(gpu(0)), in_slice(gpu(1), generation=2), in_slice(gpu(2), node="other")
    assert [device.name for device in claims_api.offered_devices([old, new, other], "gpu-node")] == ["gpu-1"]


@pytest.mark.parametrize(
    ("wanted", "replicas", "devices", "words"),
    [
        (strategy("time-slicing"), 3, SEVEN, "no whole GPU of the node"),
        (strategy("mig", profile="1g"), 3, WHOLE, "featureGates.DynamicMIG=true"),
        (strategy("mig", profile="1g"), 8, SEVEN, "8 MIG instances of 1g are needed on one GPU, the driver offers 7"),
        (strategy("mig", profile="2g"), 1, SEVEN, "1 MIG instances of 2g are needed"),
    ],
)
def test_what_the_gpu_cannot_give_is_refused(wanted: Strategy, replicas: int, devices: list[Any], words: str) -> None:
    found = claims.select_devices(devices, wanted, replicas)
    assert isinstance(found, str)
    assert words in found


def test_an_api_server_that_drops_counters_is_refused() -> None:
    """Kubernetes 1.34 and 1.35 without their gate, where any two placements would seem to be free."""
    place = instance("1g.18gb", 0, is_made=False)
    del place["consumesCounters"]
    for places, is_possible in (([place], False), ([instance("1g.18gb", 0, is_made=False)], True)):
        found = claims.select_devices(offered(*places), strategy("mig", profile="1g"), 1)
        assert isinstance(found, str) != is_possible
        assert is_possible or "feature gate DRAPartitionableDevices" in str(found)


@pytest.mark.parametrize(
    ("layout", "is_possible"),
    [
        # NVIDIA's MIG user guide: placements of an H100, whose slices of memory are in eighths
        (("3g", "3g"), True),
        (("3g", "3g", "1g"), False),
        (("3g", "2g", "1g", "1g"), True),
        (("1g", "1g", "2g", "3g"), True),
        (("2g", "2g", "2g", "1g"), True),
        (("2g", "2g", "2g", "1g", "1g"), False),
        (("1g",) * 7, True),
        (("7g", "1g"), False),
    ],
)
def test_only_layouts_that_fit_on_one_gpu_are_feasible(layout: tuple[str, ...], is_possible: bool) -> None:
    counts = {"1g.18gb": 7, "2g.35gb": 3, "3g.71gb": 2, "7g.141gb": 1}
    places = [instance(name, number, is_made=False) for name, count in counts.items() for number in range(count)]
    found = claims.select_devices(offered(*places), strategy("mig", profiles=layout), len(layout))
    if isinstance(found, str):
        assert not is_possible and "do not fit on one GPU together" in found
        return
    assert is_possible
    taken = [counter for (device,) in found for counter in device.consumed_counters]
    assert len(taken) == len(set(taken))
    # Placed one by one, the last may have no room: 3g at 0, 2g at 4, 1g at 6.
    several = claims.select_devices(
        offered(*places), strategy("mig", profiles=layout, claim_per="instance"), len(layout)
    )
    assert isinstance(several, str) == (len(set(layout)) > 1)


def test_all_instances_come_from_one_gpu() -> None:
    spread = offered(*(instance("1g.5gb", number, minor) for minor in (0, 1) for number in range(2)))
    assert isinstance(claims.select_devices(spread, strategy("mig", profile="1g"), 3), str)
    found = parts(spread, strategy("mig", profile="1g"), 2)
    assert {nvidia.parent_uuid(device) for (device,) in found} == {"GPU-0"}


def test_a_profile_given_by_slices_means_the_one_with_least_memory() -> None:
    several = offered(
        instance("1g.35gb", 0, memory="35Gi"), instance("1g.18gb+me", 1, memory="16Gi"), instance("1g.18gb", 2)
    )
    found = parts(several, strategy("mig", profile="1g"), 1)
    assert nvidia.mig_profile(found[0][0]) == "1g.18gb"


def test_the_sharing_config_of_each_strategy() -> None:
    ((whole,),) = parts(WHOLE, LONG, 3)
    made = devices_of(LONG, 3, WHOLE)
    assert made["requests"][0]["exactly"]["selectors"] == [
        {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].uuid == '{nvidia.device_uuid(whole)}'"}}
    ]
    assert sharing(made) == [{"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}]
    assert "config" not in devices_of(PLAIN, 3, WHOLE), "left to the driver"
    own = claims.build_claims(
        strategy("mig", profile="1g", claim_per="instance"), parts(SEVEN, strategy("mig", profile="1g"), 2)
    )
    assert [each["spec"]["devices"]["requests"][0]["name"] for each in own] == ["part-0", "part-1"]


ALL_ON = {"TimeSlicingSettings": True, "MPSSupport": True}
LONG, MPS, PLAIN = strategy("time-slicing", interval="long"), strategy("mps"), strategy("time-slicing")


@pytest.mark.parametrize(
    ("wanted", "version", "gates", "words"),
    [
        (PLAIN, "v0.4.1", {}, None),
        (LONG, "v0.4.1", {}, "set featureGates.TimeSlicingSettings=true"),
        (LONG, "v0.4.1", ALL_ON, None),
        (MPS, "v0.5.0", {}, "set featureGates.MPSSupport=true"),
        (MPS, "v0.5.0", {"MPSSupport": True}, None),
        (MPS, "v0.4.1", {"MPSSupport": True}, "leaves the GPU in EXCLUSIVE_PROCESS"),
        (MPS, "v0.4.1", ALL_ON, None),
        (MPS, "v0.5.0", ALL_ON | {"DynamicMIG": True}, "featureGates.DynamicMIG=false"),
    ],
)
def test_strategies_need_gates_and_versions(
    wanted: Strategy, version: str, gates: dict[str, bool], words: str | None
) -> None:
    why = nvidia.unsupported(wanted, InstalledDriver(version, gates, "driver"))
    assert why is None if words is None else words in (why or "")
    assert nvidia.unsupported(wanted, None) is None


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (PLAIN, None),
        (MPS, "no MPS while it offers consumable shares; set CONSUMABLE_SHARES"),
        (strategy("exclusive", claim_per="tenant"), "two claims may get the same GPU"),
    ],
)
def test_devices_that_take_several_claims_do_not_serve_all(wanted: Strategy, words: str | None) -> None:
    why = nvidia.refused_shares(wanted, offered(gpu() | {"allowMultipleAllocations": True}), 3)
    assert why is None if words is None else words in (why or "")
    assert nvidia.refused_shares(wanted, WHOLE, 3) is None, "the gate alone offers none"


OWN = strategy("time-slicing", claim_per="tenant")


def sharable(**shares: str) -> dict[str, Any]:
    """A GPU as driver 0.5 offers it; with `shares`, to that number of claims."""
    made = gpu(0)
    counts = {name: {"value": value} for name, value in shares.items()}
    return made | {"allowMultipleAllocations": True, "capacity": made["capacity"] | counts}


def test_each_tenant_has_a_claim_for_the_one_gpu_and_an_even_part_of_its_memory() -> None:
    """Where the driver counts memory, a claim that asks for none would take all."""
    devices = offered(sharable(), gpu(1))
    made = claims.build_claims(OWN, parts(devices, OWN, 3), 3)
    assert [each["metadata"]["name"] for each in made] == ["gpu-0", "gpu-1", "gpu-2"]
    (request,) = made[2]["spec"]["devices"]["requests"]
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].uuid == '{nvidia.device_uuid(devices[0])}'"}}
    ]
    memory = devices[0].capacity_bytes["memory"]
    assert request["exactly"]["capacity"] == {"requests": {"memory": f"{memory // 3 >> 20}Mi"}}
    (shared,) = claims.build_claims(PLAIN, parts(devices, PLAIN, 3), 3)
    assert "capacity" not in shared["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize(
    ("device", "replicas", "words"),
    [
        (gpu(0), 3, "takes one claim at a time; have the DRA driver .* gate ConsumableShares"),
        (sharable(), 7, None),
        (sharable(shares="5"), 5, None),
        (
            sharable(shares="5"),
            7,
            "to 5 claims, and 7 tenants .* fewer replicas, or set CONSUMABLE_SHARES .* to 7 or unlimited",
        ),
    ],
)
def test_a_gpu_that_does_not_take_so_many_claims_is_refused(
    device: dict[str, Any], replicas: int, words: str | None
) -> None:
    why = nvidia.refused_shares(OWN, offered(device), replicas)
    assert why is None if words is None else re.search(words, why or "")


@pytest.mark.parametrize(
    ("wanted", "gates", "words"),
    [
        (LONG, {}, "set spec.draDriver.featureGates.TimeSlicingSettings: true in GPUCluster gpu-cluster"),
        (MPS, {}, "set spec.draDriver.featureGates.MPSSupport: true in GPUCluster gpu-cluster"),
        (MPS, {"DynamicMIG": True}, "set spec.draDriver.featureGates.DynamicMIG: false in GPUCluster gpu-cluster"),
    ],
)
def test_the_gates_of_a_gpu_cluster_are_set_in_it(wanted: Strategy, gates: dict[str, bool], words: str) -> None:
    owned = driver_set(",".join(f"{name}={value}" for name, value in gates.items()))
    owned["metadata"]["ownerReferences"] = [owner("gpu-cluster") | {"kind": "GPUCluster"}]
    assert (why := nvidia.unsupported(wanted, nvidia.find_driver([owned]))) is not None
    assert words in why and "Helm" not in why


def test_only_specs_of_strategies_with_an_interval_have_it() -> None:
    given = config_with({"node": "kubernetes", "kubernetes.access": "dra", "strategies": ["time-slicing", "mps"]})
    given[S]["long"] = {"mechanism": "time-slicing", "interval": "long", "access": "dra"}
    given["strategies"] += ["long"]
    of_study = Study(load(given))
    specs = {cell.strategy: of_study.spec(cell).strategy.spec() for cell in of_study.cells}
    assert specs["long"]["interval"] == "long"
    assert "interval" not in specs["time-slicing"]


FOUR = offered(*(gpu(minor, f"GPU-{minor}") for minor in range(4)))


def test_a_claim_on_several_gpus_names_them() -> None:
    two = strategy("mps", gpus=2, memory_percent=50.0)
    made = devices_of(two, 3, FOUR)
    (request,) = made["requests"]
    assert request["exactly"]["count"] == 2
    (selector,) = request["exactly"]["selectors"]
    assert selector["cel"]["expression"] == "device.attributes['gpu.nvidia.com'].uuid in ['GPU-0', 'GPU-1']"
    (shared,) = sharing(made)
    assert shared["mpsConfig"] == {"defaultPerDevicePinnedMemoryLimit": {"GPU-0": "20480Mi", "GPU-1": "20480Mi"}}
    assert claims.select_devices(WHOLE, two, 3) == "2 whole GPUs are needed, the DRA driver offers 1 of the node"
