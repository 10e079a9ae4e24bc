"""The job that measures the cells of one start of their tenants, which it knows by their records' paths.

The specs of a long sweep fit into no command line.
"""

from pathlib import Path

from sharebench.measure.run.jobs import Run, measure_cells
from sharebench.study.cells import cell_from_path


def measure(run: Run, raw: list[str], code: str, calibrations: list[Path]) -> None:
    """Measure the cells with these records; see `measure_cells`."""
    cells = run.study.in_order(map(cell_from_path, raw))
    measure_cells(run, [run.study.spec(cell).text for cell in cells], code, calibrations)
