"""Layouts of mig-manager's map: found, named, added and taken out again."""

from __future__ import annotations

import pytest

from sharebench.nodes.kubernetes.access.device_plugin import mig_layouts
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
