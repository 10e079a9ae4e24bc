"""The loads of a sweep are one job, with one start of the tenants and a record for each load."""

import json

import pytest
from pipeline.harness import Checkout

LOADS = "{arrival: poisson, rate_of_capacity: [0.2, 0.4, 0.6]}"
SIMULATED = [f"workload_catalogue={{alpha: {{load: {LOADS}}}}}", "workloads=alpha", "strategies=mps"]
SIMULATED += ["replicas=[2]", "repeats=1", "baseline=none"]
CELLS = [f"mps/alpha-rate_of_capacity-{share}/2/1" for share in (0.2, 0.4, 0.6)]
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
with open("{starts}", "a") as starts:
    starts.write("started\\n")
class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def starts(checkout: Checkout) -> list[tuple[str, int]]:
    """The id of each cell's start, and the cell's position in it."""
    records = [checkout.record(cell) for cell in CELLS]
    return [(record["start"]["id"], record["start"]["position"]) for record in records]


def test_the_loads_of_a_sweep_share_a_start_and_are_measured_together(untouched: Checkout) -> None:
    assert untouched.run(config=SIMULATED).ok().cells == set(CELLS)
    first = starts(untouched)
    assert len({start for start, _ in first}) == 1
    assert sorted(position for _, position in first) == [0, 1, 2]
    # The tenants were started for the first of them.
    tenants = [untouched.record(cell)["tenants"] for cell in CELLS]
    assert [all(each["startup"] for each in two) for two in tenants] == [position == 0 for _, position in first]

    assert untouched.run(config=SIMULATED).ok().cells == set()
    untouched.delete_records(CELLS[1])
    assert untouched.run(config=SIMULATED).ok().cells == set(CELLS)
    second = starts(untouched)
    assert {start for start, _ in second}.isdisjoint(start for start, _ in first)
    assert [position for _, position in second] == [position for _, position in first], "the order is the seed's"
    one_load = [*SIMULATED, "workloads=alpha-rate_of_capacity-0.4"]
    assert untouched.run(config=one_load, options=["--dry-run"]).ok().cells == set()
    untouched.delete_records(*CELLS)
    assert untouched.run(config=one_load).ok().cells == {CELLS[1]}


def test_a_sweep_whose_specs_fit_into_no_command_line_is_planned_and_measured(untouched: Checkout) -> None:
    product = 50_000 * "x"
    study = untouched.root / "large.yaml"
    study.write_text((untouched.root / "simulated.yaml").read_text() + f"simulated: {{product: {product}}}\n")
    assert "3 of 3 cells to measure on node simulated" in untouched.plan(*SIMULATED, study="large.yaml")
    record = "results/cells/mps/alpha-rate_of_capacity-0.2/n2/r1/raw.json"
    assert untouched.run(record, study="large.yaml", config=SIMULATED).ok().cells == set(CELLS)


def test_a_failed_load_fails_its_job_and_a_tenant_that_ends_only_its_load(untouched: Checkout) -> None:
    untouched.run(config=SIMULATED).ok()
    order = [
        cell
        for _, cell in sorted((position, cell) for cell, (_, position) in zip(CELLS, starts(untouched), strict=True))
    ]
    untouched.delete_records(*CELLS)
    folder = str(untouched.record_path(order[1]).parent.relative_to(untouched.results))
    untouched.plant_outage({"cells": [folder]})
    failed = untouched.run(config=SIMULATED)
    assert failed.failed["run_cell"] == set(CELLS)
    assert untouched.measured_cells() == set()

    untouched.plant_outage({"tenants": {folder: "crashed"}})
    assert untouched.run(config=SIMULATED).ok().cells == set(CELLS)
    records = [untouched.record(cell) for cell in order]
    assert [record["status"] for record in records] == ["ok", "crashed", "ok"]
    ids = [record["start"]["id"] for record in records]
    # The load is tried again with a start of its own.
    assert len(set(ids)) == 3
    assert [record["start"]["position"] for record in records] == [0, 0, 0]


@pytest.mark.thorough
def test_a_server_starts_once_for_all_loads(untouched: Checkout) -> None:
    log = untouched.root / "tmp/starts"
    (untouched.root / "server.py").write_text(SERVER.replace("{starts}", str(log)))
    entry = {"command": ["{python}", "{here}/server.py", "{port}"], "kind": "http", "load": {"concurrency": [1, 2, 4]}}
    config = ["node=cpu", f"workload_catalogue={json.dumps({'server': entry})}", "workloads=server", "repeats=1"]
    config += ["strategies=exclusive", "replicas=[1]", "null_cells=false", "window_seconds=1"]
    names = [f"server-concurrency-{number}" for number in (1, 2, 4)]
    calibrated = untouched.run(*(f"results/calibration/{name}.json" for name in names), config=config).ok()
    # Each load is calibrated with a start of its own, and on a busy machine again.
    assert calibrated.jobs["calibrate"] == set(names) and len(log.read_text().splitlines()) >= 3
    log.unlink()
    assert "calibrate" not in untouched.run(config=config).ok().jobs
    assert log.read_text().splitlines() == ["started"]
    records = [untouched.record(f"exclusive/{name}/1/1") for name in names]
    assert len({record["start"]["id"] for record in records}) == 1
    assert [record["tenants"][0]["load"]["concurrency"] for record in records] == [1, 2, 4]
    assert all(record["tenants"][0]["count"] > 0 for record in records)
