"""Units."""

from __future__ import annotations

MEBIBYTE = 1 << 20
