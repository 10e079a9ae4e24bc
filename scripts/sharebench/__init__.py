"""The pipeline's library: configuration, cells, nodes, tenants, gates, tables and figures."""

SCHEMA_VERSION = 1
