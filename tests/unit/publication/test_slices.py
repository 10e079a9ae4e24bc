"""The probes of visits give lengths of a time-slice with their percentiles."""

from pathlib import Path

from gpu import probes

from publication.numbers import Number
from publication.slices import FILE, Slice, read_slices
from sharebench.core.files import write_json

PERCENTILES = {"count": 9, "p5_us": 2000.0, "p50_us": 2100.0, "p95_us": 2200.0}


def test_the_probes_of_a_visit_are_read_by_number_of_tenants(tmp_path: Path) -> None:
    shares = {"tenants_on_device_mean": 1.0, "idle_ratio": 0.0, "overlap_ratio": 0.0, "infeasible": None}
    for tenants in (7, 2):
        strategies = {
            "time-slicing": shares | {"run": PERCENTILES, "switch": PERCENTILES},
            "mps": shares | {"run": PERCENTILES, "switch": PERCENTILES},
        }
        node = {"kind": "nvidia", "product": "GPU", "device": "a", "details": {}}
        probe = {"node": node, "tenants": tenants, "strategies": strategies}
        write_json(probes.folder(tmp_path / "visit", tenants) / probes.FILES[0], probe)
    (tmp_path / FILE).parent.mkdir()
    probes.table([tmp_path / "visit"]).to_csv(tmp_path / FILE, index=False)
    length = Number(2100.0, 2000.0, 2200.0)
    assert read_slices(tmp_path) == [Slice("a", tenants, 9, length.scaled(1e-3), length) for tenants in (2, 7)]
    assert read_slices(tmp_path / "none") == []
