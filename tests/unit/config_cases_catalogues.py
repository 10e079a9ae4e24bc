"""Refused configs with a wrong entry in the strategy or workload catalogue."""

from typing import Any

from unit.studies import SIMULATED, S, W

# Changes of the config, and parts of the error line: key, value, remedy.
CATALOGUES: dict[str, tuple[dict[str, Any], list[str]]] = {
    # the strategy catalogue
    "catalogue without entries": ({S: {}}, ["strategies:", "'exclusive'", "not in the catalogue", "nothing is known"]),
    "no mechanism": ({f"{S}.new": {}}, [f"{S}.new:", "mechanism is missing", "add it"]),
    "layers upside down": (
        {f"{S}.new": {"mechanism": ["mps", "mig"], "profile": "3g", "instances": 2}},
        [f"{S}.new.mechanism:", "[mps, mig]", "not layers", "use [mig, time-slicing] or [mig, mps]"],
    ),
    "layers without instances": (
        {f"{S}.new": {"mechanism": ["mig", "mps"], "profile": "3g"}},
        [f"{S}.new.instances:", "null", "layers", "such as 2"],
    ),
    "mig without profile": ({f"{S}.new": {"mechanism": "mig"}}, [f"{S}.new.profile:", "null", "such as 1g"]),
    "unequal profiles next to one": (
        {f"{S}.mig.profiles": ["1g", "2g"]},
        [f"{S}.mig.profile:", "'1g'", "next to profiles", "remove"],
    ),
    "wrong profile": ({f"{S}.mig.profile": "one"}, [f"{S}.mig.profile:", "'one'", "such as 1g, 3g"]),
    "a warm-up as long as the wait for it": (
        {"warmup.max_seconds": 60},
        ["timeouts.start_seconds:", "60", "warmup.max_seconds", "set more"],
    ),
    "profile without mig": ({f"{S}.mps.profile": "1g"}, [f"{S}.mps.profile:", "'1g'", "without mig", "remove"]),
    "limit as text": ({f"{S}.mps.thread_percent": "half"}, ["'half'", "neither a number", "such as 100/N"]),
    "limits for other tenants than there are": (
        {f"{S}.mps.replicas": [2, 3], f"{S}.mps.thread_percent": [60, 20, 20]},
        [f"{S}.mps.thread_percent:", "[60, 20, 20] is for 3 tenants", "replicas are [2, 3]", "give each tenant one"],
    ),
    "a share among limits of each": ({f"{S}.mps.thread_percent": ["100/N", 20]}, ["100/N", "is not a number"]),
    "two limits of the memory": (
        {f"{S}.mps-limited.memory_limit": "5Gi"},
        [f"{S}.mps-limited.memory_limit:", "'5Gi'", "no effect next to memory_percent", "remove one"],
    ),
    "exclusive for two": (
        {f"{S}.exclusive.replicas": [1, 2]},
        [f"{S}.exclusive.replicas:", "[1, 2]", "one tenant", "set [1]"],
    ),
    "again but different": (
        {f"{S}.exclusive-again.mechanism": "mps"},
        [f"{S}.exclusive-again:", "not the same as 'exclusive'", "make them equal"],
    ),
    "exclusive is something else": (
        {f"{S}.exclusive": {"mechanism": "mps"}},
        [f"{S}.exclusive:", "not exclusive", "restore it"],
    ),
    "device": ({f"{S}.device": {"mechanism": "mps"}}, [f"{S}.device:", "reserved", "device.json", "another"]),
    # the workload catalogue
    "mix": ({"workloads": "matmul+memcopy"}, ["workloads:", "'matmul+memcopy'", "not in the catalogue"]),
    "mix as a name": ({f"{W}.a+b": {"module": "matmul"}}, [f"{W}:", "'a+b'", "+ is kept for mixes"]),
    "no model": (SIMULATED | {"workloads": "memcopy"}, ["workloads:", "'memcopy'", "add", f"{W}.memcopy.simulated"]),
    "model of no work": ({f"{W}.matmul.simulated": {}}, [f"{W}.matmul.simulated:", "0 seconds", "serial_seconds"]),
    "no module": ({f"{W}.matmul.module": None}, ["workloads:", "'matmul'", "'cpu'", f"add {W}.matmul.module"]),
    "a CUDA graph on the stand-in": (
        {"workloads": "matmul-256-graph"},
        ["workloads:", "'matmul-256-graph'", "'cpu'", "graph", "use one", "matmul-256, ", "set node: nvidia"],
    ),
    "half precision on the stand-in": (
        {"workloads": "matmul-16384", "window_seconds": 10},
        ["workloads:", "'matmul-16384'", "'cpu'", "float32 or float64, not float16", "set node: nvidia"],
    ),
    "module without file": (
        {f"{W}.matmul.module": "matmull"},
        [f"{W}.matmul.module:", "'matmull'", "no file", "did you mean 'matmul'?", "memcopy"],
    ),
    "closed with a rate": (
        {f"{W}.matmul.load": {"rate_hz": 5}},
        [f"{W}.matmul.load.rate_hz:", "5", "no effect on a closed load", "remove it"],
    ),
    "more than a client can send": (
        {f"{W}.matmul.load": {"arrival": "poisson", "rate_hz": 1e6}},
        [f"{W}.matmul.load.rate_hz:", "1e+06 is above 50000", "give less"],
    ),
    "open without rate": (
        {f"{W}.matmul.load": {"arrival": "poisson"}},
        [f"{W}.matmul.load:", "poisson", "none is given", "give exactly one"],
    ),
}
