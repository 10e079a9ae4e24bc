"""Hold the documents and the ready tables of this checkout against the data of published/, or rewrite them from it."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "made", type=Path, help="what `snakemake paper` made of all data sets: paper/together/repository"
    )
    parser.add_argument("--write", action="store_true", help="write what differs, instead of naming it")
    arguments = parser.parse_args()
    wanted = {path.relative_to(arguments.made): path for path in arguments.made.rglob("*") if path.is_file()}
    here = {name: ROOT / name for name in wanted}
    differ = [
        name
        for name, path in sorted(wanted.items())
        if not here[name].is_file() or here[name].read_bytes() != path.read_bytes()
    ]
    images = {ROOT / name for name in wanted if name.suffix == ".svg"}
    folders = {path.parent for path in images}
    leftover = sorted(path for folder in folders for path in folder.glob("*.svg") if path not in images)
    if arguments.write:
        for name in differ:
            here[name].parent.mkdir(parents=True, exist_ok=True)
            here[name].write_bytes(wanted[name].read_bytes())
        for path in leftover:
            path.unlink()
    changed = [*map(str, differ), *(str(path.relative_to(ROOT)) for path in leftover)]
    if changed and not arguments.write:
        print(f"differ from the data: {', '.join(changed)}; rewrite them: make findings")
        return 1
    print(f"written: {', '.join(changed)}" if changed else "all documents agree with the data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
