"""The loads of a sweep: cells that differ in their load only, measured with one start of their tenants."""

from collections.abc import Callable, Sequence

from sharebench.measure.cell.cell import CellRun, Measured, Tenancy


def measure_sweep(runs: Sequence[CellRun], begin: Callable[[CellRun], None]) -> list[Measured]:
    """Measure cells in this order; `begin` is called before each.

    The tenants are started once. After a cell that did not end well, the next one starts new ones, and so does a cell
    for which tenants of an earlier one do not get ready. Raises as `CellRun.measure` does.
    """
    measured: list[Measured] = []
    tenancy: Tenancy | None = None
    try:
        for number, run in enumerate(runs, start=1):
            begin(run)
            tenancy, running = None, tenancy
            record, rows = run.measure(running, len(runs) - number)
            if running is not None and record["status"] != "ok" and not run.steady:
                # What an earlier load left behind, such as its unanswered requests, is not a result of this one.
                print(f"  measuring it with a start of its own: {record['reason']}", flush=True)
                record, rows = run.measure(None, len(runs) - number)
            measured.append((record, rows))
            tenancy = run.tenancy
    finally:
        if tenancy is not None:
            # An interrupt came between two cells.
            tenancy.tenants.stop()
    return measured
