"""Gathering what tenants and the device report."""
