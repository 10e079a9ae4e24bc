"""Rows of preflight's report."""

from typing import NamedTuple

from sharebench.core.console import wrap_text

NAME_WIDTH = 26
INDENT = " " * (NAME_WIDTH + 2)


class ReportRow(NamedTuple):
    """A row of the report; one with an empty name continues the previous row."""

    name: str
    text: str

    def __str__(self) -> str:
        # A command is to be copied, so it has a line of its own, however long.
        prose, kubectl, command = self.text.partition("kubectl ")
        lines = wrap_text(prose, f"  {self.name:{NAME_WIDTH}}", INDENT) if prose else []
        return "\n".join(lines + [INDENT + kubectl + command] * bool(kubectl))
