"""The code that runs inside a tenant: a load that measures itself. Needs only numpy and prometheus_client."""

import time

# The first line of a tenant that runs; the time from its launch to here is a part of its start-up.
FIRST_LINE_NS = time.monotonic_ns()
