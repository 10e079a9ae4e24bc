"""raw.json: atomic writing, checked reading, and comparison with the current spec and code."""

import json
import math

import pytest
from unit import factories

from sharebench.model.records import record
from sharebench.model.records.record import RecordError, RecordMismatch
from sharebench.read.gates import gates


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cells" / "raw.json"


@pytest.fixture
def sound():
    return factories.record("mps", [[0.004] * 300, [0.005] * 250])


def test_a_written_record_is_read_back(path, sound):
    record.write(path, sound)
    assert record.read(path) == sound
    assert [file.name for file in path.parent.iterdir()] == ["raw.json"]


def test_read_judged_evaluates_the_current_gates(path, sound):
    # An older record lacks a gate, and has another verdict of one.
    old = [{**gate, "passed": False} for gate in sound["gates"] if gate["name"] != "level_shift"]
    record.write(path, {**sound, "gates": old})
    assert record.read(path)["gates"] == old
    assert gates.read_judged(path)["gates"] == sound["gates"]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("streams need a workload with a captured CUDA graph (graph: true)", "not-measured"),
        ("streams are tenants of one process, which runs one workload: no mix", "not-measured"),
        ("MIG mode is off", "infeasible"),
    ],
)
def test_an_old_record_gets_the_current_status(path, reason, status):
    record.write(path, factories.record(status="infeasible", reason=reason))
    before = path.read_bytes()
    assert record.read(path)["status"] == status
    assert path.read_bytes() == before


def test_a_record_has_no_characters_that_a_terminal_would_obey(path, sound):
    hostile = "\x1b]0;title\x07\u202ename\u009b31m × 2\n"
    sound["node"] = sound["node"] | {"label": hostile, "details": {hostile: [hostile]}}
    sound["spec"] += "\u200b"
    record.write(path, sound)
    read = record.read(path)
    plain = "]0;titlename31m × 2\n"
    assert (read["node"]["label"], read["node"]["details"]) == (plain, {plain: [plain]})
    assert read["spec"] == sound["spec"], "it is compared with the study's"


def test_equal_records_give_equal_bytes(path, tmp_path, sound):
    record.write(path, sound)
    record.write(tmp_path / "other.json", dict(reversed(sound.items())))
    assert path.read_bytes() == (tmp_path / "other.json").read_bytes()


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("where", [("timing", "stop_seconds"), ("node", "details")])
def test_nan_and_infinity_are_not_written(path, sound, number, where):
    record.write(path, sound)
    before = path.read_bytes()
    section, key = where
    sound[section][key] = {"clock": number} if key == "details" else number
    with pytest.raises(RecordError, match=r"raw\.json"):
        record.write(path, sound)
    assert path.read_bytes() == before


def test_a_breach_of_the_schema_is_not_written(path, sound):
    del sound["tenants"][1]["drain_seconds"]
    with pytest.raises(RecordError, match=r"raw\.json: breaks the schema at tenants/1: .*drain_seconds"):
        record.write(path, sound)
    assert not path.exists()


TWO: dict[str, object] = {"count": 2, "sum_seconds": 0.004, "histogram": {"700": 2}}
CHANGES = {
    "schema version is 2": {"schema": 2},
    "schema version is None": {"schema": None},
    "breaks the schema at node/kind": {"node.kind": "tpu"},
    "breaks the schema at tenants/0": {"tenants.0.surprise": 1},
    "tenant 1: its histogram holds 251 iterations, its count says 250": {"tenants.1.histogram.1800": 1},
    "tenant 0: its timeline holds 301 iterations, its count says 300": {"tenants.0.timeline.count.0": 14},
    "tenant 0: its sum_seconds is 0.12, by its histogram and timeline it is within 1.2 and 1.2": {
        "tenants.0.sum_seconds": 0.12
    },
    "tenant 0: its sum_seconds is 1.2, by its histogram and timeline it is within 1.15 and 1.15": {
        "tenants.0.timeline.sum_seconds.0": 0.002
    },
    "tenant 1: its min_seconds is 1e-09": {"tenants.1.min_seconds": 1e-9},
    "tenant 1: its max_seconds is 99": {"tenants.1.max_seconds": 99},
    "tenant 1: its sum_squares_seconds2 is 0.006": {"tenants.1.sum_squares_seconds2": 0.006},
    "tenant 0: its device_histogram sum_seconds is 0.5": {"tenants.0.device_histogram": TWO | {"sum_seconds": 0.5}},
    "tenant 0: its stage gap count is 3": {"tenants.0.stages": {"gap": TWO | {"count": 3}}},
    "tenant 0: its stage pre sum_seconds is 0.5": {"tenants.0.stages": {"pre": TWO | {"sum_seconds": 0.5}}},
}


@pytest.mark.parametrize("message", CHANGES)
def test_an_inconsistent_record_is_refused_in_one_line(path, sound, message):
    record.write(path, sound)
    path.write_text(json.dumps(factories.with_changes(sound, CHANGES[message])))
    with pytest.raises(RecordError) as refusal:
        record.read(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < len(str(path)) + 300


@pytest.mark.parametrize(
    "latencies",
    [
        [1e-9, 5e-7, 1.0000001e-6],
        [1e-6 * 2 ** (index / 64) for index in range(0, 1915, 64)],
        [0.0123456789] * 1000,
        [999.0, 1500.0],
        [],
    ],
    ids=["first bucket", "at the bounds", "narrow", "overflow", "none"],
)
def test_any_measured_tenant_fits_its_own_histogram(path, latencies):
    made = factories.record(latencies=[latencies], window_seconds=max(2.0, sum(latencies)))
    record.write(path, made)
    assert record.read(path) == made


def test_columns_of_requests_must_have_one_length(path):
    made = factories.streamed(
        factories.tenant(0, factories.back_to_back([0.1] * 3)), [0, 0.1, 0.2], [0.1] * 3, [[]] * 3
    )
    record.write(path, factories.record(tenants=[made]))
    assert record.read(path)["tenants"][0]["requests"]["ttft_seconds"] == [0.1] * 3
    made["requests"]["ttft_seconds"].pop()
    record.write(path, factories.record(tenants=[made]))
    with pytest.raises(RecordError, match="tenant 0: the columns of its requests differ in length"):
        record.read(path)


def test_an_old_record_without_squares_and_with_neighbour_telemetry_is_read(path, sound):
    del sound["tenants"][0]["sum_squares_seconds2"]
    sound["telemetry"]["neighbours"] = [{"index": 1, "power_mean_watts": 251.0, "utilisation_mean_percent": None}]
    record.write(path, sound)
    assert record.read(path) == sound


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *[(lambda whole, text=text: text, "") for text in (b"", b"nonsense", b"[1, 2]", b'"text"', b"\x00\x01")],
        (lambda whole: whole.replace(b'"stop_seconds":0.1', b'"stop_seconds":NaN'), "NaN"),
        (lambda whole: b"\xff\xfe" + whole, "damaged"),
        (lambda whole: whole[: len(whole) // 2], "cut off"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_not_a_record_is_refused(path, sound, damage, message):
    record.write(path, sound)
    whole = path.read_bytes()
    path.write_bytes(damage(whole)) if damage else path.unlink()
    with pytest.raises(RecordError, match=rf"raw\.json: .*{message}"):
        record.read(path)


def test_a_mismatch_names_each_difference(sound):
    record.check_current(sound, sound["spec"], sound["code"])
    sound["spec"] = json.dumps({"window_seconds": 2, "workload": {"params": {"size": 512}, "old": 1}})
    wanted = json.dumps({"window_seconds": 5, "workload": {"params": {"size": 1024}, "new": [1]}})
    with pytest.raises(RecordMismatch) as mismatch:
        record.check_current(sound, wanted, "code-2")
    assert str(mismatch.value).split("; ") == [
        "window_seconds 2 → 5",
        "workload.new is new: [1]",
        "workload.old is gone",
        "workload.params.size 512 → 1024",
        "the measuring code has changed",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"a":2}', '{"a":2.0}', "a 2 → 2.0"),
        ('{"a":1}', '{"a":true}', "a 1 → true"),
        ('{"a":1}', '{"a": 1}', "written differently"),
        ('{"a":{"b":1}}', '{"a":null}', 'a {"b": 1} → null'),
        ("not json", '{"a":1}', "not json"),
    ],
)
def test_any_difference_in_the_text_is_a_mismatch(sound, old, new, message):
    sound["spec"] = old
    with pytest.raises(RecordMismatch, match=message.replace("{", r"\{")):
        record.check_current(sound, new, sound["code"])
