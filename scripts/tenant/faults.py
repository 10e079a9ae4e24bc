"""The kinds of faults: what a tenant may do wrong on purpose (workloads/fault.py), for who only needs their names."""

from __future__ import annotations

KINDS = {
    "oom": "oom",
    "leak": "oom",
    "illegal-address": "crashed",
    "assert": "crashed",
    "killed": "killed",
    "stopped": "hung",
    "spin": "hung",
}
"""Each with the status that the tenant ends with."""
