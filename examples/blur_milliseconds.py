"""Blurs images forever and measures the stages in milliseconds: `blur_milliseconds.py PORT`."""

import sys
import time

import numpy as np
from prometheus_client import Histogram, start_http_server

BUCKETS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 500, 1000)
STAGES = Histogram("stage_duration", "Time of a stage, ms", ["stage"], buckets=BUCKETS)


def milliseconds_since(begun: float) -> float:
    """Time since `begun`, from time.perf_counter()."""
    return (time.perf_counter() - begun) * 1000


start_http_server(int(sys.argv[1]))
print("ready to blur", flush=True)
while True:
    begun = time.perf_counter()
    image = np.random.rand(512, 512)
    STAGES.labels("load").observe(milliseconds_since(begun))
    begun = time.perf_counter()
    blurred = np.fft.irfft2(np.fft.rfft2(image) * np.exp(-np.linspace(0, 4, 257)))
    STAGES.labels("blur").observe(milliseconds_since(begun))
