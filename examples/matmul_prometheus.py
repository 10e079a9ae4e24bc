"""Multiplies matrices forever and measures each matmul, in seconds, at http://localhost:8000/metrics."""

import numpy as np
from prometheus_client import Histogram, start_http_server

LATENCY = Histogram(
    "matmul_seconds",
    "Time of one matmul",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)

start_http_server(8000)
left, right = np.random.rand(400, 400), np.random.rand(400, 400)
while True:
    with LATENCY.time():
        result = left @ right
