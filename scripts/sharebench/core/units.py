"""Units."""

MEBIBYTE = 1 << 20
NS = 1_000_000_000
"""Nanoseconds of a second."""
