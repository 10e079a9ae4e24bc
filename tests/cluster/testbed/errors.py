"""Errors that users see as one line."""


class TestbedError(Exception):
    """Raised with the reason and the remedy if the test bed cannot do something here."""

    __test__ = False  # its name begins with "Test", and pytest would collect it
