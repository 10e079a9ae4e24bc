"""tables/interference.csv: by how much each workload is slowed down beside each, from the rows of the summary."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sharebench.study.cells import pair_name

COLUMNS = (
    "strategy",
    "victim",
    "aggressor",
    "slowdown",
    "slowdown_low",
    "slowdown_high",
    "n",
    "n_expected",
    "status",
    "reason",
)


def interference_table(summary: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """One row per strategy that has pairs, victim and aggressor, the last two in the order of `names`."""
    kept = [column for column in COLUMNS if column not in ("victim", "aggressor")]
    by_pair = summary.set_index(["strategy", "workload", "tenant_workload"], drop=False)[kept]
    rows = []
    for strategy in dict.fromkeys(summary["strategy"]):
        for victim in names:
            for aggressor in names:
                key = (strategy, pair_name(victim, aggressor), victim)
                if key in by_pair.index:
                    found = dict(by_pair.loc[[key]].iloc[0])
                    rows.append(found | {"victim": victim, "aggressor": aggressor})
    return pd.DataFrame(rows, columns=list(COLUMNS))
