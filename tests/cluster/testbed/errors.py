"""Errors that a user gets in one line."""


class TestbedError(Exception):
    """The test bed cannot do this here; the message has the reason and the remedy."""

    __test__ = False  # its name begins with "Test", and pytest would collect it
