"""Which tables a study has. Rules and the lists of figures ask here, so this imports nothing heavy."""

from collections.abc import Callable, Mapping

from sharebench.model.prometheus_options import has_prometheus
from sharebench.model.study_config import StudyConfig, has_conformance, has_jobs

TABLES: Mapping[str, Callable[[StudyConfig], object]] = {
    **dict.fromkeys(("cells", "summary", "contrasts", "devices", "stages", "startup"), lambda config: True),
    **dict.fromkeys(("gates", "evidence", "outcomes"), lambda config: True),
    "interference": lambda config: config["interference"],
    "isolation": lambda config: config["faults"],
    "conformance": has_conformance,
    "jobs": has_jobs,
    "prometheus": lambda config: has_prometheus(config["prometheus"]),
}
"""Each table that is made from records, tables/NAME.csv, with what decides whether a study has it."""
UNREPORTED = frozenset({"stages", "startup", "prometheus"})
"""Tables that the report does not show."""


def has_table(name: str, config: StudyConfig) -> bool:
    return bool(TABLES[name](config))


def table_names(config: StudyConfig) -> list[str]:
    return [name for name in TABLES if has_table(name, config)]
