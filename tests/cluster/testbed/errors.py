"""What a user is told in one line."""


class TestbedError(Exception):
    """The test bed cannot do this here; the message says why and what to do instead."""

    __test__ = False  # its name begins with "Test", and pytest would collect it
