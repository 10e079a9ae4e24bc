"""Layouts of mig-manager's map, and each strategy's instances; labels are those of a real node of the test bed."""

from typing import Any

import pytest

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_instances
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import PluginConfig
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import (
    MigInfeasible,
    MigInventory,
    Partitioning,
)
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import (
    LayoutMap,
    full_profile_name,
    parse_entries,
)
from sharebench.model.strategy import Strategy

# Like NVIDIA's own map: one file for many kinds of GPU, with filters for entries that differ between them.
MAP = """\
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false

  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}

  # A100-40GB, A800-40GB
  all-1g.5gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 7
  all-1g.5gb.me:
    - devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb+me": 1}
  all-1g.10gb:
    - device-filter: ["0x20B010DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 4}
    - device-filter: ["0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
  all-2g.10gb: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 3}}]
  all-3g.20gb: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  first-card: [{devices: [0], mig-enabled: true, mig-devices: {4g.20gb: 1}}]
  first-of-2: [{devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 7}}, {devices: [1], mig-enabled: false}]
  all-balanced:
    - device-filter: ["0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    - device-filter: "0x20B010DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
"""


def known(gpus: int = 1, memory_mib: int | None = 40960, text: str = MAP) -> LayoutMap:
    where = "key k of ConfigMap n/m"
    return LayoutMap(where, parse_entries(text, where), gpus, memory_mib)


WHOLE = {
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.product": "NVIDIA-Mock-A100-SXM4-40GB",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
}
EIGHT = WHOLE | {"nvidia.com/gpu.count": "8"}
BALANCED = WHOLE | {
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/mig.config": "all-balanced",
    "nvidia.com/mig-1g.5gb.count": "2",
    "nvidia.com/mig-1g.5gb.replicas": "1",
    "nvidia.com/mig-2g.10gb.count": "1",
    "nvidia.com/mig-3g.20gb.count": "1",
}
SINGLE = WHOLE | {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "19968",
    "nvidia.com/gpu.product": "NVIDIA-Mock-A100-SXM4-40GB-MIG-3g.20gb",
}


def mig(*profiles: str, inner: str | None = None, instances: int | None = None) -> Strategy:
    """A MIG strategy: of one profile, or of unequal instances."""
    mechanisms = ("mig", inner) if inner else ("mig",)
    profile = profiles[0] if len(profiles) == 1 else None
    unequal = profiles if len(profiles) > 1 else None
    return Strategy.model_construct(
        name="a-strategy", mechanism=mechanisms, profile=profile, instances=instances, profiles=unequal
    )


EXCLUSIVE = Strategy(name="exclusive", mechanism=("exclusive",))


def possible(labels: dict[str, str], may_change: bool = True, **more: Any) -> MigInventory:
    """A node with these labels and their instances, whose GPU has 40 GiB."""
    of_map = known(int(labels["nvidia.com/gpu.count"]) if labels is not SINGLE else 1)
    existing = mig_instances.shown_layout(labels)
    defaults = {"layout_map": of_map if may_change else None, "fixed_strategy": None, "existing": existing}
    return MigInventory(labels, **defaults | more)


@pytest.mark.parametrize(
    ("labels", "layout"),
    [
        (WHOLE, {}),
        (BALANCED, {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (SINGLE, {"3g.20gb": 2}),
        (WHOLE | {"nvidia.com/mig-1g.5gb.me.count": "1"}, {"1g.5gb+me": 1}),
        (WHOLE | {"nvidia.com/mig-1g.24gb.gfx.count": "4"}, {"1g.24gb+gfx": 4}),
        (WHOLE | {"nvidia.com/mig-2g.48gb.me.all.count": "1"}, {"2g.48gb+me.all": 1}),
        (WHOLE | {"nvidia.com/mig-1g.24gb-me.count": "4"}, {"1g.24gb-me": 4}),
        (SINGLE | {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-1g.24gb.gfx-SHARED"}, {"1g.24gb+gfx": 2}),
        (WHOLE | {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-INVALID"}, {}),
        (SINGLE | {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-3g.20gb-SHARED"}, {"3g.20gb": 2}),
    ],
)
def test_the_layout_that_labels_show(labels: dict[str, str], layout: dict[str, int]) -> None:
    assert mig_instances.shown_layout(labels) == layout


def test_profiles_are_told_apart_by_the_whole_gpus_memory() -> None:
    """The memory label may be an instance's, with the plugin's MIG strategy single."""
    assert possible(SINGLE, fixed_strategy="single").partitioning(mig("1g"), 2).layout == {"1g.5gb": 7}
    with pytest.raises(MigInfeasible, match=r"1g could be none or several of the manager's map"):
        possible(SINGLE, layout_map=known(memory_mib=None), fixed_strategy="single").partitioning(mig("1g"), 2)


@pytest.mark.parametrize("labels", [WHOLE, BALANCED, SINGLE])
def test_facts_of_the_gpu_do_not_depend_on_its_partitioning(labels: dict[str, str]) -> None:
    assert mig_instances.whole_product(labels) == "NVIDIA-Mock-A100-SXM4-40GB"
    assert mig_instances.gpu_count(labels) == 1
    # the label has an instance's memory
    assert mig_instances.gpu_memory_mib(labels) == (None if labels is SINGLE else 40960)


@pytest.mark.parametrize(
    ("strategy", "most", "cut"),
    [
        # one layout serves all numbers of tenants
        (mig("1g"), 3, Partitioning({"1g.5gb": 7}, ("1g.5gb",) * 7, "all-1g.5gb")),
        (mig("1g.10gb"), 9, Partitioning({"1g.10gb": 4}, ("1g.10gb",) * 4, "all-1g.10gb")),
        (
            mig("3g", "2g", "1g", "1g"),
            4,
            Partitioning(
                {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, ("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"), "all-balanced"
            ),
        ),
        (
            mig("3g", inner="time-slicing", instances=2),
            7,
            Partitioning({"3g.20gb": 2}, ("3g.20gb",) * 2, "all-3g.20gb", replicas=4),
        ),
    ],
)
def test_the_partitioning_of_each_strategy(strategy: Strategy, most: int, cut: Partitioning) -> None:
    assert possible(WHOLE).partitioning(strategy, most) == cut
    # the same if it exists already
    assert possible(BALANCED).partitioning(strategy, most) == cut


@pytest.mark.parametrize(
    ("labels", "config"),
    [
        (WHOLE, None),
        (WHOLE | {"nvidia.com/mig.config": "all-disabled"}, "all-disabled"),
        (BALANCED, "all-disabled"),
        # MIG mode without an instance
        (WHOLE | {"nvidia.com/gpu.replicas": "0"}, "all-disabled"),
    ],
)
def test_the_partitioning_for_a_whole_gpu(labels: dict[str, str], config: str | None) -> None:
    assert possible(labels).partitioning(EXCLUSIVE, 1) == Partitioning({}, config=config)


def test_existing_instances_are_used_and_others_stay() -> None:
    found = possible(BALANCED, may_change=False).partitioning(mig("1g"), 7)
    assert (found.profiles, found.config) == (("1g.5gb", "1g.5gb"), None)
    assert found.resources == {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-3g.20gb": 1}
    shared = possible(BALANCED, may_change=False).partitioning(mig("1g", inner="time-slicing", instances=2), 6)
    assert shared.resources["nvidia.com/mig-1g.5gb"] == 6
    assert shared.resources["nvidia.com/mig-3g.20gb"] == 1
    assert shared.labels("A100")["nvidia.com/mig-1g.5gb.sharing-strategy"] == "time-slicing"
    assert shared.labels("A100")["nvidia.com/mig-3g.20gb.sharing-strategy"] == "none"


@pytest.mark.parametrize(
    ("node", "strategy", "replicas", "words"),
    [
        (possible(WHOLE), mig("1g", inner="mps", instances=2), 2, "refuses MPS on MIG instances"),
        (possible(WHOLE | {"nvidia.com/mig.capable": "false"}), mig("1g"), 1, "has no MIG"),
        (possible(EIGHT, may_change=False), mig("1g"), 1, "several GPUs"),
        (possible(EIGHT, fixed_strategy="single"), mig("1g"), 1, "single, for all GPUs"),
        (possible(WHOLE, fixed_strategy="none"), mig("1g"), 1, "MIG_STRATEGY of its DaemonSet is none"),
        (possible(WHOLE, fixed_strategy="single"), mig("3g", "1g"), 1, "is single, not mixed"),
        (possible(WHOLE), mig("1g"), 8, "8 MIG instances of profile 1g.5gb are needed, 7 fit"),
        (possible(WHOLE), mig("3g", "2g", "1g", "1g"), 5, "5 tenants need 5 MIG instances, the strategy has 4"),
        (possible(WHOLE), mig("6g"), 1, "MIG profile 6g could be none or several"),
        # the plugin would deal the tenants out over both instances of the map's entry
        (possible(WHOLE), mig("3g", inner="time-slicing", instances=1), 1, "no entry for these instances of one GPU"),
        # the entry is for the first GPU only
        (possible(WHOLE), mig("1g.20gb"), 1, "no entry for these instances of one GPU: 7 of 1g.20gb; add to key k of"),
        (
            possible(WHOLE | {"nvidia.com/gpu.count": "3"}),
            mig("1g"),
            1,
            "{devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 7}}, {devices: [1, 2], mig-enabled: false}]",
        ),
        (
            possible(WHOLE, layout_map=known(text=MAP.replace("all-dis", "dis").replace("false", "true"))),
            mig("1g"),
            1,
            "none;",
        ),
        (possible(BALANCED, is_made_by_hand=True), mig("1g"), 1, "was not made by the MIG manager"),
        (possible(WHOLE, may_change=False), mig("1g"), 1, "there are: none; the GPU operator's MIG manager makes"),
        (possible(BALANCED, may_change=False), mig("2g"), 2, "2 MIG instances of profile 2g.10gb are needed, 1 fit or"),
        (possible(BALANCED, may_change=False), mig("3g", "3g"), 1, "there are: 2 of 1g.5gb, 1 of 2g.10gb"),
        (
            possible(BALANCED, may_change=False),
            mig("1g", inner="time-slicing", instances=1),
            1,
            "more such MIG instances than the strategy shares",
        ),
        (possible(BALANCED, may_change=False), EXCLUSIVE, 1, "partitioned by MIG"),
        (possible(WHOLE | {"nvidia.com/gpu.replicas": "0"}, may_change=False), EXCLUSIVE, 1, "partitioned by MIG"),
    ],
)
def test_infeasible_strategies_have_reasons(node: MigInventory, strategy: Strategy, replicas: int, words: str) -> None:
    reason = node.infeasible(strategy, replicas, replicas)
    assert reason is not None
    assert words in reason
    assert "\n" not in reason


def test_under_the_single_mig_strategy_instances_are_offered_as_gpus() -> None:
    cut = possible(SINGLE, may_change=False, fixed_strategy="single").partitioning(
        mig("3g", inner="time-slicing", instances=2), 4
    )
    assert cut.resource_of_group(1) == "nvidia.com/gpu"
    assert cut.resources == {"nvidia.com/gpu": 4}
    labels = cut.labels("NVIDIA-A100")
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-MIG-3g.20gb-SHARED"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.replicas"]) == ("2", "2")
    assert cut.plugin_config == PluginConfig("time-slicing", 2, "single")


def test_tenants_of_unequal_instances_request_their_own_profile() -> None:
    cut = Partitioning({"3g.20gb": 1, "1g.5gb+me": 1}, ("3g.20gb", "1g.5gb+me"))
    names = ("nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me")
    assert tuple(cut.resource_of_group(group) for group in (0, 1)) == names
    assert cut.plugin_config == PluginConfig("none", 1, "mixed", names)


@pytest.mark.parametrize(
    ("wanted", "memory_mib", "name"),
    [
        ({}, 40960, "all-disabled"),
        ({"1g.5gb": 7}, 40960, "all-1g.5gb"),
        # the first GPU is the only one
        ({"4g.20gb": 1}, 40960, "first-card"),
        ({"3g.20gb": 1, "1g.5gb": 2, "2g.10gb": 1}, 40960, "all-balanced"),
        ({"3g.40gb": 1, "1g.10gb": 2, "2g.20gb": 1}, 81559, "all-balanced"),
        # seven on one kind of GPU, four on another
        ({"1g.10gb": 7}, 81559, "all-1g.10gb"),
        ({"1g.10gb": 4}, 81559, None),
        ({"1g.10gb": 7}, 40960, None),
        ({"1g.10gb": 4}, 40960, "all-1g.10gb"),
    ],
)
def test_an_entry_is_found_by_its_layout(wanted: dict[str, int], memory_mib: int, name: str | None) -> None:
    assert known(memory_mib=memory_mib).entry_name(wanted) == name


def test_the_present_label_is_kept_if_it_means_the_same_layout() -> None:
    more = known(text=MAP + "  seven: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]\n")
    assert more.entry_name({"1g.5gb": 7}, "seven") == "seven"
    assert more.entry_name({"1g.5gb": 7}, "all-balanced") == "all-1g.5gb"


# Memory of the product in MiB as the driver reports it, and the profiles that it has: NVIDIA's MIG user guide, and the
# map of NVIDIA's MIG manager.
PRODUCTS = {
    "NVIDIA-A30": (24576, ["1g.6gb", "2g.12gb", "4g.24gb"]),
    "NVIDIA-A100-SXM4-40GB": (40960, ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
    "NVIDIA-A800-SXM4-80GB": (81920, ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    "NVIDIA-H100-80GB-HBM3": (81559, ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    "NVIDIA-H100-NVL": (95830, ["1g.12gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]),
    "NVIDIA-H20": (97871, ["1g.12gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"]),
    "NVIDIA-GH200-480GB": (97871, ["1g.12gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"]),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": (97887, ["1g.24gb", "2g.48gb", "4g.96gb"]),
    "NVIDIA-H200": (143771, ["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]),
    "NVIDIA-B200": (183359, ["1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]),
    "NVIDIA-GB200": (189471, ["1g.24gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb"]),
}
VARIANTS = ["1g.5gb+me", "1g.24gb-me", "1g.24gb+gfx", "2g.48gb-me", "2g.48gb+me.all", "4g.96gb+gfx"]
OTHERS = ["1g.20gb", "1g.35gb", "1g.45gb", "1g.47gb"]
NAMES = sorted({name for _, names in PRODUCTS.values() for name in names} | {*OTHERS, *VARIANTS})
A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]], ids=["ascending", "descending"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_profile_given_by_slices_is_that_of_the_product(product: str, names: list[str]) -> None:
    memory_mib, own = PRODUCTS[product]
    assert [full_profile_name(name.split(".")[0], names, [], product, memory_mib) for name in own] == own


@pytest.mark.parametrize(
    ("wanted", "names", "shown", "product", "memory_mib", "name"),
    [
        ("1g.7gb", [], [], A100, None, "1g.7gb"),
        ("1g.24gb-me", NAMES, [], A100, 40960, "1g.24gb-me"),
        ("2g", ["1g.5gb", "2g.10gb"], [], A100, None, "2g.10gb"),
        # existing instances count more than likely ones
        ("1g", ["1g.5gb", "1g.10gb"], ["1g.10gb", "2g.10gb"], A100, 40960, "1g.10gb"),
        ("1g", ["1g.5gb", "1g.10gb"], [], A100, None, None),
        ("1g", ["1g.5gb", "1g.24gb"], [], "NVIDIA-H200", 143771, None),
        ("4g", ["1g.5gb"], [], A100, 40960, None),
        ("3g", NAMES, [], "NVIDIA-A30", 24576, None),
        # of a new product only what all kinds of GPU of its memory have
        ("1g", NAMES, [], "NVIDIA-Z9", 97887, None),
        ("3g", NAMES, [], "NVIDIA-Z9", 97887, "3g.48gb"),
        ("1g", ["1g.12gb", "1g.5gb"], [], "NVIDIA-Z9", 97887, "1g.12gb"),
    ],
)
def test_an_ambiguous_profile_is_not_guessed(
    wanted: str, names: list[str], shown: list[str], product: str, memory_mib: int | None, name: str | None
) -> None:
    assert full_profile_name(wanted, names, shown, product, memory_mib) == name


@pytest.mark.parametrize(
    ("product", "instances", "gpus"),
    [("NVIDIA-A30-MIG-1g.6gb", 8, 2), (f"{A100}-MIG-1g.5gb", 8, 2), (f"{A100}-MIG-3g.20gb-SHARED", 2, 1)],
)
def test_gpus_are_the_fewest_that_hold_the_instances(product: str, instances: int, gpus: int) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(instances)}
    assert mig_instances.gpu_count(labels) == gpus


@pytest.mark.parametrize("text", ["", "- 1\n", "mig-configs: 1\n", "a: [\n"])
def test_an_invalid_layout_map_is_refused(text: str) -> None:
    with pytest.raises(NodeError, match="of no use: key k of"):
        parse_entries(text, "key k of a map")


def test_of_several_gpus_one_is_partitioned() -> None:
    made = possible(WHOLE | {"nvidia.com/gpu.count": "2"}).partitioning(mig("1g"), 3)
    assert made.config == "first-of-2", "the others are for all GPUs"
    assert made.resources == {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/gpu": 1}
    assert made.labels("any")["nvidia.com/gpu.replicas"] == "1"
