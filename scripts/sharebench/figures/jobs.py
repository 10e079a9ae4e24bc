"""Makespan of jobs against their number, beside that of a queue."""

import numpy as np
from matplotlib.axes import Axes

from sharebench.figures import NAMES, data, line_panels
from sharebench.figures.page import Sheet
from sharebench.figures.style import GREY, log_axis

MAKESPAN = "makespan_seconds"
MOST_ON_A_LINEAR_SCALE = 20
"""Makespans further apart than this factor are drawn on a log scale, where the small ones can be told apart."""


def draw(study: data.Study) -> Sheet:
    """One panel per job: seconds until the last is done, with their interval; a line per strategy, one for a queue."""
    catalogue = study.config["strategy_catalogue"]
    queues = {name for name, entry in catalogue.items() if entry["mechanism"] == ["sequential"]}

    def panel(ax: Axes, panel: line_panels.Panel) -> None:
        rows = panel.rows
        if queues.isdisjoint(rows.loc[rows[MAKESPAN].notna(), "strategy"]):
            _reckoned(ax, panel)
        for line in panel.lines:
            bars = line_panels.intervals(line.rows, MAKESPAN)
            ax.errorbar(
                line.x, line.rows[MAKESPAN], yerr=bars, capsize=1.8, capthick=0.8, elinewidth=0.8, **line.look.line
            )
        shown = rows[[MAKESPAN, f"{MAKESPAN}_low", f"{MAKESPAN}_high"]]
        low, high = float(shown.min().min()), float(shown.max().max())
        if high > MOST_ON_A_LINEAR_SCALE * low:
            log_axis(ax, "y", low / 1.25, high * 1.25)
        else:
            ax.set_ylim(0, 1.08 * high)

    return line_panels.panels(study, NAMES["jobs"].title, "Makespan (s)", MAKESPAN, panel, table=data.jobs(study))


def _reckoned(ax: Axes, panel: line_panels.Panel) -> None:
    """N times one exclusive job, where no queue was measured."""
    rows = panel.rows
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), MAKESPAN].dropna()
    if not alone.empty:
        n = np.geomspace(1, float(rows["replicas"].max()), 100)
        places = [panel.place(value) for value in n]
        ax.plot(places, n * float(alone.iloc[0]), color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=1)
