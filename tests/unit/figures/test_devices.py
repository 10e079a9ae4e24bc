"""The figure of devices: tables/devices.csv as drawn, and the text for a single device."""

from pathlib import Path

import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.read.columns import columns
from sharebench.read.figures import data, devices

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def write(root: Path, rows: list[dict[str, object]]) -> None:
    pd.DataFrame(rows, columns=list(columns("devices"))).to_csv(root / "tables" / "devices.csv", index=False)


def device_row(strategy: str, replicas: int, device: str, ratio: float, within: float | None) -> dict[str, object]:
    point = {"strategy": strategy, "workload": "matmul", "tenant_workload": "matmul", "replicas": replicas}
    return point | {"device": device, "over_all_devices": ratio, "within_device_percent": within}


def test_each_device_has_a_mark_and_repeats_have_a_band(root: Path) -> None:
    write(
        root,
        [
            *(device_row("exclusive", 1, device, ratio, 0.7) for device, ratio in {"aa": 1.01, "bb": 0.99}.items()),
            *(device_row("mps", 2, device, ratio, None) for device, ratio in {"aa": 1.5, "bb": 0.6}.items()),
            *(device_row("mps", 4, device, ratio, None) for device, ratio in {"aa": 0.98, "bb": 1.02}.items()),
        ],
    )
    page = devices.devices(data.load_study(root, root))
    (ax,) = page.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["exclusive × 1", "MPS × 4"]
    marks = [(round(line.get_xdata()[0], 6), line.get_ydata()[0]) for line in ax.lines if line.get_marker() != "None"]
    assert marks == [(1, 0), (-1, 0), (-2, 1), (2, 1)]
    (band,) = ax.patches
    assert (band.get_x(), band.get_width()) == (-0.7, 1.4), "of mps nothing was measured twice on one device"
    assert -ax.get_xlim()[0] == ax.get_xlim()[1] > 2
    assert "matmul, MPS × 4: -2.00 to +2.00 %" in page.alt_text


def test_one_device_has_nothing_to_draw(root: Path) -> None:
    write(root, [])
    page = devices.devices(data.load_study(root, root))
    assert "Nothing to draw: everything was measured on one device." in page.alt_text
