"""The tenants of a cell: processes on this host, or virtual ones."""
