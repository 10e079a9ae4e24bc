"""The tenant's command line: `python -m tenant --workload MODULE --params JSON --port P`.

Prints {"port": N} as soon as its server listens, then loads, warms up and loops until SIGTERM. Exit codes:
0 told to stop, 2 wrong arguments or parameters, 12 out of memory, 1 any other failure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from tenant import FIRST_LINE_NS
from tenant.parameters import ParameterError
from tenant.server import Server
from tenant.state import State

EXIT_USAGE = 2
EXIT_OUT_OF_MEMORY = 12
TOKEN_VARIABLE = "SHAREBENCH_TOKEN"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tenant", description="Run one tenant and measure it.")
    parser.add_argument("--workload", required=True, help="module in tenant/workloads")
    parser.add_argument("--name", help="name of the workload in the record and the metrics (default: the module)")
    parser.add_argument("--params", type=_json_object, default={}, help="the workload's parameters, JSON")
    parser.add_argument("--load", type=_json_object, default={}, help="arrival, rate_hz, queue_limit, seed, JSON")
    parser.add_argument("--warmup", type=_json_object, default={}, help="the rule of steadiness, JSON")
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 picks one")
    parser.add_argument("--index", type=int, default=0, help="number of the tenant, from 0")
    parser.add_argument("--spawned-ns", type=int, default=FIRST_LINE_NS, help="monotonic time of the launch")
    return parser.parse_args()


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _announce(port: int) -> None:
    print(json.dumps({"port": port}), flush=True)
    # Whatever a framework prints must not fill a pipe that nobody reads.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _run(arguments: argparse.Namespace, state: State) -> NoReturn:
    begin_ns = time.monotonic_ns()
    from tenant import workloads

    module = workloads.load_module(arguments.workload)
    import_seconds = (time.monotonic_ns() - begin_ns) / 1e9
    from tenant.load import Load
    from tenant.measure import Measurement
    from tenant.record import Identity
    from tenant.warmup import Rule

    load, rule = Load.parse(arguments.load), Rule.parse(arguments.warmup)
    begin_ns = time.monotonic_ns()
    workload = workloads.create(module, arguments.params)
    load_seconds = (time.monotonic_ns() - begin_ns) / 1e9
    identity = Identity(
        index=arguments.index,
        name=arguments.name or arguments.workload,
        process_seconds=(FIRST_LINE_NS - arguments.spawned_ns) / 1e9,
        import_seconds=import_seconds,
        load_seconds=load_seconds,
    )
    state.measurement = measurement = Measurement(workload, identity, load, rule)
    state.status = "warming"
    measurement.warm_up()
    state.status = "ready"
    while True:
        measurement.turn()


def main() -> NoReturn:
    """Run until told to stop."""
    signal.signal(signal.SIGTERM, _stop)
    # One core per tenant, always: BLAS threads of several tenants would spin against each other.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    arguments = _arguments()
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        sys.exit(_line(f"{TOKEN_VARIABLE} is not set", EXIT_USAGE))
    state = State()
    server = Server(arguments.bind, arguments.port, token, state)
    server.start()
    _announce(server.port)
    try:
        _run(arguments, state)
    except ParameterError as error:
        code = _line(str(error), EXIT_USAGE)
    except MemoryError as error:
        code = _line(f"out of memory: {str(error) or 'the allocation failed'}", EXIT_OUT_OF_MEMORY)
    except Exception:
        traceback.print_exc()
        code = 1
    state.status = "failed"
    sys.exit(code)


def _line(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
