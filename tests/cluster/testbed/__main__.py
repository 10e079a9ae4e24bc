"""`python -m cluster.testbed check | build | up | down | list | hold | release`: see README.md in the folder above."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cluster.testbed import gpu, images, instance, lifecycle, node, pack, programs, requirements, sources
from cluster.testbed.errors import TestbedError
from cluster.testbed.instance import Instance


def existing(name: str) -> Instance:
    found = instance.find(name)
    if found is None or found.init_pid() is None:
        raise TestbedError(f"no test bed {name!r} is running; there are: {', '.join(lifecycle.names()) or 'none'}")
    return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="testbed", description="A one-node Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, description in {
        "check": "name what this machine lacks for it, if anything",
        "build": "make all binaries and images that tests need, ahead of them",
        "pack": "put what a machine without network needs for its own GPU into loads that can be carried there",
        "up": "start it, with the device plugin on a mock GPU",
        "down": "end it, and all whose tests were killed, and remove everything",
        "list": "names of what there is",
        "hold": "kill a component and keep it down",
        "release": "let a held component start again",
    }.items():
        sub = commands.add_parser(command, help=description)
        if command == "pack":
            sub.add_argument("out", type=Path, help="folder that is made for the loads")
            sub.add_argument("--mib", type=int, default=60, help="largest load (default: 60)")
        if command not in ("check", "build", "pack", "list"):
            sub.add_argument("--name", default="main", help="several test beds run side by side (default: main)")
        if command == "up":
            described = "mock; or the machine's own, by device files (real) or by NVIDIA's DRA driver (real-cdi)"
            sub.add_argument("--gpu", choices=instance.GPUS, default="mock", help=described)
        if command in ("hold", "release"):
            sub.add_argument("component", choices=node.NAMES)
    return parser.parse_args()


def check() -> None:
    """Raise TestbedError if this machine lacks a requirement."""
    lack = requirements.missing() or programs.unobtainable(
        (*programs.NODE_PROGRAMS, *programs.GPU_PROGRAMS, *programs.TOOLS, *images.FURTHER.values())
    )
    if lack:
        raise TestbedError(lack)
    print("the test bed can run here")


def down(name: str) -> None:
    print("removed" if lifecycle.down(name) else f"there is no test bed {name!r}")
    for other in lifecycle.sweep():
        print(f"removed {other}, whose tests were killed")


def main() -> None:
    options = parsed()
    try:
        if options.command == "check":
            check()
        elif options.command == "build":
            images.build_all()
            sources.fetch_all()
        elif options.command == "pack":
            for load in pack.pack(options.out, options.mib):
                print(f"{load}: {load}/unpack FOLDER, there")
        elif options.command == "up":
            begun = time.monotonic()
            found = lifecycle.up(options.name, stays=True, gpu=options.gpu)
            gpu.install(found)
            print(f"test bed {found.name} is up after {time.monotonic() - begun:.0f} s")
            print(f"export KUBECONFIG={found.kubeconfig}")
        elif options.command == "down":
            down(options.name)
        elif options.command == "list":
            print("\n".join(lifecycle.names()))
        elif options.command == "hold":
            lifecycle.hold(existing(options.name), options.component)
        else:
            lifecycle.release(existing(options.name), options.component)
    except TestbedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
