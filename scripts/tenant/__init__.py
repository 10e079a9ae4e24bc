"""What runs inside a tenant: one load stream that measures itself. Needs only numpy and prometheus_client."""

import time

# Here, because nothing of a tenant runs earlier: its start-up is measured from its launch to this line.
FIRST_LINE_NS = time.monotonic_ns()
