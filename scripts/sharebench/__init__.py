"""The pipeline's library: configuration, cells, nodes, tenants, gates, tables and figures."""

from typing import Final

SCHEMA_VERSION: Final = 1
