"""Layouts of mig-manager's map, and which instances a strategy gets; labels as a real node of the test bed had them."""

from typing import Any

import pytest
import yaml

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.access.device_plugin import keys, mig_instances, mig_layouts
from sharebench.nodes.kubernetes.access.device_plugin.mig_instances import MigInfeasible, MigInventory, Partitioning
from sharebench.nodes.kubernetes.access.device_plugin.mig_layouts import (
    NotAMap,
    capacity,
    entry_name,
    full_name,
    named,
    parse,
)

# As of NVIDIA's own map: one file for many kinds of GPU, with a filter where a name means several counts.
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
  all-3g.20gb: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  first-card: [{devices: [0], mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  all-balanced: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}]
"""
KNOWN = parse(MAP)

WHOLE = {
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.product": "NVIDIA-Mock-A100-SXM4-40GB",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
}
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
    return Strategy("a-strategy", mechanisms, profile, instances, None, None, None, profiles=unequal)


EXCLUSIVE = Strategy("exclusive", ("exclusive",), None, None, None, None, None)


def possible(labels: dict[str, str], may_change: bool = True, **more: Any) -> MigInventory:
    """A node with these labels; its instances are those that they tell of, and its GPU has 40 GiB."""
    given = {"known": KNOWN if may_change else None, "fixed": None, "existing": mig_instances.shown(labels)}
    return MigInventory(labels, **given | {"memory_mib": 40960} | more)


@pytest.mark.parametrize(
    ("labels", "layout"),
    [
        (WHOLE, {}),
        (BALANCED, {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (SINGLE, {"3g.20gb": 2}),
        (WHOLE | {"nvidia.com/mig-1g.5gb.me.count": "1"}, {"1g.5gb+me": 1}),
        (SINGLE | {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-3g.20gb-SHARED"}, {"3g.20gb": 2}),
    ],
)
def test_what_the_labels_tell(labels: dict[str, str], layout: dict[str, int]) -> None:
    assert mig_instances.shown(labels) == layout


def test_profiles_are_distinguished_by_the_memory_of_the_whole_gpu() -> None:
    """Whatever GPU its label shows: with the plugin's MIG strategy single that is an instance."""
    known = KNOWN | {"all-1g.18gb": [{"1g.18gb": 7}]}
    assert possible(SINGLE, known=known, fixed="single").partitioning(mig("1g"), 2).layout == {"1g.5gb": 7}
    with pytest.raises(MigInfeasible, match=r"1g could be none or several of the manager's map"):
        possible(SINGLE, known=known, fixed="single", memory_mib=None).partitioning(mig("1g"), 2)


def test_labels_may_be_ahead_of_the_kubelet() -> None:
    three = {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-3g.20gb": 1}
    assert mig_instances.offers(BALANCED, three)
    assert not mig_instances.offers(BALANCED, {"nvidia.com/gpu": 1})
    assert mig_instances.offers(SINGLE, {"nvidia.com/gpu": 2})
    assert mig_instances.offers(WHOLE, {})


@pytest.mark.parametrize("labels", [WHOLE, BALANCED, SINGLE])
def test_the_gpu_is_the_same_however_it_is_cut(labels: dict[str, str]) -> None:
    assert mig_instances.whole_product(labels) == "NVIDIA-Mock-A100-SXM4-40GB"
    assert mig_instances.gpus(labels) == 1
    # of an instance only, which is not the GPU's
    assert mig_instances.memory_mib(labels) == (None if labels is SINGLE else 40960)


@pytest.mark.parametrize(
    ("strategy", "most", "cut"),
    [
        # the ready-made layout, which serves all numbers of tenants
        (mig("1g"), 3, Partitioning({"1g.5gb": 7}, ("1g.5gb",) * 7, "all-1g.5gb")),
        # none is ready-made: as many as the study needs, or as fit
        (mig("2g"), 2, Partitioning({"2g.10gb": 2}, ("2g.10gb",) * 2, "sharebench-2x2g.10gb")),
        (mig("2g"), 9, Partitioning({"2g.10gb": 3}, ("2g.10gb",) * 3, "sharebench-3x2g.10gb")),
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
        # the plugin would deal the tenants over both of the ready-made layout
        (
            mig("3g", inner="time-slicing", instances=1),
            1,
            Partitioning({"3g.20gb": 1}, ("3g.20gb",), "sharebench-1x3g.20gb", replicas=2),
        ),
    ],
)
def test_what_is_made(strategy: Strategy, most: int, cut: Partitioning) -> None:
    assert possible(WHOLE).partitioning(strategy, most) == cut
    # the same once it is there
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
def test_the_whole_gpu(labels: dict[str, str], config: str | None) -> None:
    assert possible(labels).partitioning(EXCLUSIVE, 1) == Partitioning({}, config=config)


def test_instances_that_exist_are_used_and_the_others_stay() -> None:
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
        (possible(WHOLE | {"nvidia.com/gpu.count": "8"}, may_change=False), mig("1g"), 1, "several GPUs"),
        (
            possible(WHOLE | {"nvidia.com/gpu.count": "8"}, fixed="single"),
            mig("1g"),
            1,
            "single, for all GPUs",
        ),
        (possible(WHOLE, fixed="none"), mig("1g"), 1, "MIG_STRATEGY of its DaemonSet is none"),
        (possible(WHOLE, fixed="single"), mig("3g", "1g"), 1, "is single, not mixed"),
        (possible(WHOLE), mig("1g"), 8, "8 MIG instances of profile 1g.5gb are needed, 7 fit"),
        (possible(WHOLE), mig("3g", "1g"), 3, "3 tenants need 3 MIG instances, the strategy has 2"),
        (possible(WHOLE), mig("6g"), 1, "MIG profile 6g could be none or several"),
        (possible(BALANCED, is_by_hand=True), mig("1g"), 1, "was not made by the MIG manager"),
        (possible(WHOLE, may_change=False), mig("1g"), 1, "there are: none; kubernetes: {may_change: [mig]} lets"),
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
def test_why_not(node: MigInventory, strategy: Strategy, replicas: int, words: str) -> None:
    reason = node.infeasible(strategy, replicas, replicas)
    assert reason is not None
    assert words in reason
    assert "\n" not in reason


def test_under_the_single_strategy_instances_are_gpus() -> None:
    cut = possible(SINGLE, may_change=False, fixed="single").partitioning(
        mig("3g", inner="time-slicing", instances=2), 4
    )
    assert cut.resource(1) == "nvidia.com/gpu"
    assert cut.resources == {"nvidia.com/gpu": 4}
    labels = cut.labels("NVIDIA-A100")
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-MIG-3g.20gb-SHARED"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.replicas"]) == ("2", "2")
    assert keys.mig_key(cut.is_single, cut.replicas, cut.profiles) == "sharebench-mig-single-ts-2"


def test_tenants_of_unequal_instances_ask_for_their_own() -> None:
    cut = possible(WHOLE).partitioning(mig("3g", "1g.5gb+me"), 2)
    assert [cut.resource(group) for group in (0, 1)] == ["nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me"]
    with pytest.raises(MigInfeasible):
        possible(WHOLE).partitioning(mig("3g", "5g"), 2)


def test_what_a_map_says() -> None:
    assert KNOWN["all-disabled"] == [{}]
    assert KNOWN["all-enabled"] == [None]
    assert KNOWN["first-card"] == [None]
    assert KNOWN["all-1g.10gb"] == [{"1g.10gb": 4}, {"1g.10gb": 7}]
    assert mig_layouts.profiles(KNOWN) == ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb"]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({}, "all-disabled"),
        ({"1g.5gb": 7}, "all-1g.5gb"),
        ({"3g.20gb": 1, "1g.5gb": 2, "2g.10gb": 1}, "all-balanced"),
        # seven on one kind of GPU, four on another
        ({"1g.10gb": 7}, None),
        # of the first card alone it would be two
        ({"3g.20gb": 1}, None),
    ],
)
def test_an_entry_by_what_it_is(wanted: dict[str, int], name: str | None) -> None:
    assert named(KNOWN, wanted) == name


def test_the_label_that_is_set_is_kept_where_it_means_the_same() -> None:
    known = {**KNOWN, "seven": [{"1g.5gb": 7}]}
    assert named(known, {"1g.5gb": 7}, "seven") == "seven"
    assert named(known, {"1g.5gb": 7}, "all-balanced") == "all-1g.5gb"


@pytest.mark.parametrize(
    ("profile", "count"), [("1g.5gb", 7), ("3g.20gb", 2), ("1g.10gb", 7), ("4g.20gb", 1), ("2g", 3)]
)
def test_how_many_fit(profile: str, count: int) -> None:
    assert capacity(KNOWN, profile) == count


# Memory of the product in MiB as the driver reports it, and the profiles that it has: NVIDIA's MIG user guide.
PRODUCTS = {
    "A100-40GB": (40960, ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
    "A100-80GB": (81920, ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    "H100-80GB": (81559, ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    "H200-141GB": (143771, ["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]),
    "B200": (183359, ["1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]),
    "A30": (24576, ["1g.6gb", "2g.12gb", "4g.24gb"]),
}
OTHERS = ["1g.12gb", "2g.24gb", "3g.47gb", "1g.20gb", "1g.35gb", "1g.45gb", "1g.5gb+me"]


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_profile_that_is_meant_by_its_slices(product: str) -> None:
    memory_mib, own = PRODUCTS[product]
    everybodys = sorted({name for _, names in PRODUCTS.values() for name in names} | set(OTHERS))
    found = [full_name(name.split(".")[0], everybodys, [], memory_mib) for name in own]
    assert found == own


@pytest.mark.parametrize(
    ("wanted", "known", "shown", "memory_mib", "name"),
    [
        ("1g.7gb", [], [], None, "1g.7gb"),
        ("2g", ["1g.5gb", "2g.10gb"], [], None, "2g.10gb"),
        # what is there counts more than what would be likely
        ("1g", ["1g.5gb", "1g.10gb"], ["1g.10gb", "2g.10gb"], 40960, "1g.10gb"),
        ("1g", ["1g.5gb", "1g.10gb"], [], None, None),
        ("1g", ["1g.5gb", "1g.24gb"], [], 143771, None),
        ("4g", ["1g.5gb"], [], 40960, None),
    ],
)
def test_a_name_is_never_made_up(
    wanted: str, known: list[str], shown: list[str], memory_mib: int | None, name: str | None
) -> None:
    assert full_name(wanted, known, shown, memory_mib) == name


@pytest.mark.parametrize("text", [MAP, MAP.replace("mig-configs:\n", "mig-configs: # ours\n\n    # one\n")])
def test_lines_of_ours_come_and_go(text: str) -> None:
    wanted = {"3g.20gb": 1, "1g.5gb+me": 1}
    there = mig_layouts.with_entries(text, [wanted, {}])
    assert named(parse(there), wanted) == "sharebench-1x3g.20gb-1x1g.5gb.me"
    assert {name: parse(there)[name] for name in KNOWN} == KNOWN
    assert mig_layouts.with_entries(there, [{}, wanted]) == there
    more = mig_layouts.with_entries(there, [{"2g.10gb": 3}])
    assert len(parse(more)) == len(KNOWN) + 3
    assert mig_layouts.without_entries(more) == text


@pytest.mark.parametrize(
    "text", ["", "- 1\n", "mig-configs: {}\n", "mig-configs: {a: [{devices: all, mig-enabled: false}]}\n", "a: [\n"]
)
def test_a_text_that_no_line_can_be_added_to(text: str) -> None:
    with pytest.raises(NotAMap):
        mig_layouts.with_entries(text, [{}])


def test_names_are_labels() -> None:
    assert entry_name({}) == "sharebench-off"
    assert entry_name({"1g.5gb": 2, "3g.20gb": 1, "2g.10gb": 1}) == "sharebench-1x3g.20gb-1x2g.10gb-2x1g.5gb"
    longest = {f"{n}g.141gb+me": 1 for n in (1, 2, 3)}
    assert len(entry_name(longest)) <= 63


def test_of_several_gpus_one_is_partitioned() -> None:
    made = possible(WHOLE | {"nvidia.com/gpu.count": "2"}).partitioning(mig("1g"), 3)
    assert made.config == "sharebench-7x1g.5gb-of-2", "a ready-made layout is for all GPUs"
    assert made.resources == {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/gpu": 1}
    assert made.labels("any")["nvidia.com/gpu.replicas"] == "1"
    (line,) = set(mig_layouts.with_entries(MAP, [made.layout], 2).splitlines()) - set(MAP.splitlines())
    (one, other) = yaml.safe_load(line)["sharebench-7x1g.5gb-of-2"]
    assert one == {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    assert other == {"devices": [1], "mig-enabled": False}
