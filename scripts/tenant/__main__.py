"""The tenant's command line: `python -m tenant --workload MODULE --params JSON --device cpu|cuda`.

Prints {"ports": [N, ...]}, one port per tenant, once its servers listen, then loads, warms up and loops until SIGTERM.
With `--streams` the process is several tenants, each a thread with its own stream, measurement and server.
Exit codes: 0 ended by SIGTERM, 2 wrong arguments or parameters, 12 out of memory, 1 any other failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import NoReturn

import tenant
from tenant.contract import EXIT_USAGE, TOKEN_VARIABLE
from tenant.failures import exit_code, report_failure
from tenant.server import Server, State

# A tenant ends sooner by its first signal, with what its workload cleans up, and is killed later.
REPEAT_SECONDS = 1.5
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tenant", description="Run one tenant and measure it.")
    parser.add_argument("--workload", required=True, help="module in tenant/workloads")
    parser.add_argument("--name", help="name of the workload in the record and the metrics (default: the module)")
    parser.add_argument("--params", type=json.loads, default={}, help="the workload's parameters, JSON")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what to run on")
    parser.add_argument("--streams", type=json.loads, help="be a tenant per item: a JSON list of objects of arguments")
    parser.add_argument("--sms", type=int, help="run in a green context of at most that number of SMs")
    parser.add_argument("--program", choices=("server", "exit", "scrape"), help="measure the next container so")
    parser.add_argument("--pid", type=int, help="of the program on this host, in place of a container; 0: elsewhere")
    parser.add_argument("--load", type=json.loads, default={}, help="arrival, rate_hz, concurrency, seed, before, JSON")
    parser.add_argument("--warmup", type=json.loads, default={}, help="the rule of steadiness, JSON")
    parser.add_argument("--watched-cell", default="", help="its name in the metrics, where Prometheus reads them")
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="(first) port to listen on; 0 picks free ones")
    parser.add_argument("--index", type=int, default=0, help="number of the (first) tenant, from 0")
    parser.add_argument("--spawned-ns", type=int, default=tenant.FIRST_LINE_NS, help="monotonic time of the launch")
    parser.add_argument("--import-seconds", type=float, default=0.0, help="time of imports before the launch")
    return parser.parse_args()


def _arguments_of_tenants(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """The arguments of each tenant of this process."""
    if arguments.streams is None:
        return [arguments]
    return [
        argparse.Namespace(**{**vars(arguments), "index": arguments.index + number, **own})
        for number, own in enumerate(arguments.streams)
    ]


def _stop(_signal: int, _frame: object) -> NoReturn:
    """End, or try again after a while: a callback or a destructor that was interrupted swallows the exception."""
    signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
    raise SystemExit(0)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _announce(ports: list[int]) -> None:
    print(json.dumps({"ports": ports}), flush=True)
    # The driver reads only this line; a framework's output must not fill the pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _run(arguments: argparse.Namespace, each: list[argparse.Namespace], states: list[State]) -> NoReturn:
    from tenant import startup

    if arguments.program:
        from tenant.program import ExitingProgram, SelfMeasuringProgram, UserProgram

        if arguments.program == "server":
            states[0].program = UserProgram(arguments.pid)
        else:
            if arguments.program == "exit":
                states[0].measurement = exiting = ExitingProgram(arguments.pid)
                exiting.wait_until_stopped()
            else:
                states[0].program = states[0].measurement = SelfMeasuringProgram(arguments.pid, **arguments.params)
            states[0].status = "ready"
            while True:
                signal.pause()
    process = startup.Process(each)
    # These import numpy, whose import must be timed as a part of the workload's.
    from tenant.contract import SteadinessRule
    from tenant.load import Load, NamedLoad
    from tenant.measure import Measurement

    rule = SteadinessRule(**arguments.warmup)
    all_loaded = threading.Event()

    def loop(number: int, loaded: threading.Event) -> NoReturn:
        state = states[number]
        workload, identity = process.load(number)
        loaded.set()
        # A capture of a graph fails where another thread of the process uses the device.
        all_loaded.wait()
        workload.attach()
        following = NamedLoad(identity.name, Load(**each[number].load), arguments.watched_cell)
        while True:
            name, load, watched_cell = following
            state.measurement = measurement = Measurement(
                workload, replace(identity, name=name), load, rule, watched_cell=watched_cell
            )
            state.status = "warming"
            measurement.warm_up()
            state.status = "ready"
            following = measurement.run_until_followed()

    if not arguments.streams:
        all_loaded.set()
        loop(0, threading.Event())
    exit_codes: SimpleQueue[int] = SimpleQueue()

    def guarded(number: int, loaded: threading.Event) -> None:
        try:
            loop(number, loaded)
        except Exception as error:
            exit_codes.put(exit_code(error))
            loaded.set()

    # This thread waits for a signal or for the first tenant that fails, either of which ends all tenants.
    try:
        for number in range(len(each)):
            # One after another. A thread loads what it runs, as libraries have handles for each thread and context.
            loaded = threading.Event()
            threading.Thread(target=guarded, args=(number, loaded), daemon=True).start()
            loaded.wait()
        all_loaded.set()
        code = exit_codes.get()
    except SystemExit:
        code = 0
    sys.stderr.flush()
    # sys.exit would tear down the interpreter under threads that are inside a framework's call.
    os._exit(code)


@_ended_by_sigterm()
def main() -> NoReturn:
    # A tenant has one core. BLAS threads of several tenants would spin against each other.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    arguments = _arguments()
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        sys.exit(report_failure(f"{TOKEN_VARIABLE} is not set", EXIT_USAGE))
    each = _arguments_of_tenants(arguments)
    states = [State() for _ in each]
    servers = [
        Server(arguments.bind, arguments.port and arguments.port + number, token, state)
        for number, state in enumerate(states)
    ]
    for server in servers:
        server.start()
    _announce([server.port for server in servers])
    try:
        _run(arguments, each, states)
    except Exception as error:
        code = exit_code(error)
    for state in states:
        state.status = "failed"
    sys.exit(code)


if __name__ == "__main__":
    main()
