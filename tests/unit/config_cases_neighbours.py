"""Refused configs of mixes, pairs, faults and jobs, with parts of the error line."""

from typing import Any

from unit.studies import SIMULATED, W


def mix(*tenants: str, **more: Any) -> dict[str, Any]:
    """The change that adds a mix of these tenants, called `new`."""
    return {f"{W}.new": {"tenants": list(tenants)} | more}


# Changes of the config, and parts of the error line: key, value, remedy.
NEIGHBOURS: dict[str, tuple[dict[str, Any], list[str]]] = {
    # mixes and pairs
    "mix of what is not there": (
        mix("matmul", "memcpy"),
        [f"{W}.new.tenants:", "'memcpy'", "not in the catalogue", "did you mean 'memcopy'?"],
    ),
    "load of a mix": (
        mix("matmul", "empty", load={"arrival": "poisson", "rate_hz": 5}),
        [f"{W}.new.load", "has no effect on a mix"],
    ),
    "mix of mixes": (
        mix("matmul", "other") | {f"{W}.other": {"tenants": ["matmul", "empty"]}},
        [f"{W}.new.tenants:", "'other'", "a mix itself", "name workloads that are none"],
    ),
    "mix alone": (
        mix("matmul", "empty") | {"workloads": "new", "replicas": [1]},
        ["replicas:", "not a mix", "'new'", "use 2 or more"],
    ),
    "mix of which one would never run": (
        mix("matmul", "empty", "matmul-light") | {"workloads": "new", "replicas": [1, 2]},
        ["replicas:", "'new' has 3 tenants, and at most 2 would run", "use 3 or more"],
    ),
    "mix that the stand-in cannot run": (
        mix("matmul", "matmul-256-graph") | {"workloads": "new"},
        [f"{W}.new.tenants:", "'matmul-256-graph'", "'cpu'", "graph"],
    ),
    "open load in a simulated mix": (
        SIMULATED | {"interference": "matmul,matmul-light"},
        ["interference:", "'matmul-light'", "open load", "'simulated'", "leave it out"],
    ),
    "no workloads": ({"workloads": []}, ["workloads:", "[]", "empty", "name at least one", "interference"]),
    "pairs of one": ({"interference": "matmul"}, ["interference:", "[matmul]", "name at least two"]),
    "pairs of a mix": (
        mix("matmul", "empty") | {"interference": "matmul,new"},
        ["interference:", "'new'", "a mix itself"],
    ),
    "pairs without a strategy for two": (
        {"interference": "matmul,memcopy", "strategies": "exclusive"},
        ["interference:", "[matmul, memcopy]", "two tenants", "[exclusive] has none", "add one"],
    ),
    # jobs
    "job without work": ({f"{W}.matmul.kind": "job"}, [f"{W}.matmul.job:", "null is not enough", "{iterations: 1000}"]),
    "job without iterations": (
        {f"{W}.batch-matmul.job": {"max_seconds": 5}},
        [f"{W}.batch-matmul.job:", "iterations is missing", "add it"],
    ),
    "work of a loop": (
        {f"{W}.matmul.job": {"iterations": 5}},
        [f"{W}.matmul.job:", "no effect on a loop", "remove it or set kind: job"],
    ),
    "open load of a job": (
        {f"{W}.batch-matmul.load": {"arrival": "poisson", "rate_hz": 5}},
        [f"{W}.batch-matmul.load.arrival:", "'poisson'", "not possible", "remove it"],
    ),
    "queue without jobs": (
        {"strategies": "exclusive,sequential"},
        ["strategies:", "'sequential'", "one after another", "(kind: job)", "batch-matmul", "leave it out"],
    ),
    # faults
    "mix as a victim": (
        {"faults": "killed", "fault_victims": "new"} | mix("matmul", "memcopy"),
        ["fault_victims:", "'new'", "a mix itself"],
    ),
    "faults without a victim": (
        {"faults": "killed", "workloads": "new"} | mix("matmul", "memcopy"),
        ["fault_victims:", "[] is empty", "[killed]", "name at least one"],
    ),
    "faults without a strategy for two": (
        {"faults": "killed", "strategies": "exclusive"},
        ["faults:", "[killed]", "two tenants", "[exclusive] has none", "add one"],
    ),
    "faults on the simulator": ({"faults": "killed"} | SIMULATED, ["faults:", "'simulated'", "node: cpu"]),
    "faults on a GPU": (
        {"faults": "killed", "node": "nvidia"},
        ["faults:", "[killed]", "'nvidia'", "allow_faults: true"],
    ),
    "workload with the name of a fault": (
        {f"{W}.fault-killed": {"module": "matmul"}},
        [f"{W}.fault-killed:", "name of a fault", "choose another"],
    ),
    "fault as a workload": ({f"{W}.new": {"module": "fault"}}, [f"{W}.new.module:", "'fault'", "in faults"]),
}
