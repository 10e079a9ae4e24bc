"""Compare the documents and ready tables of this checkout with the data of published/, or rewrite them from it."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("built", type=Path, help="output of `snakemake paper` for all data sets, …/together/repository")
    parser.add_argument("--write", action="store_true", help="write the files that differ, instead of naming them")
    arguments = parser.parse_args()
    built = {path.relative_to(arguments.built): path for path in arguments.built.rglob("*") if path.is_file()}
    different = [
        name
        for name, path in sorted(built.items())
        if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != path.read_bytes()
    ]
    images = {ROOT / name for name in built if name.suffix == ".svg"}
    folders = {path.parent for path in images}
    leftover = sorted(path for folder in folders for path in folder.glob("*.svg") if path not in images)
    if arguments.write:
        for name in different:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_bytes(built[name].read_bytes())
        for path in leftover:
            path.unlink()
    changed = [*map(str, different), *(str(path.relative_to(ROOT)) for path in leftover)]
    if changed and not arguments.write:
        print(f"differ from the data: {', '.join(changed)}; rewrite them: make findings")
        return 1
    print(f"written: {', '.join(changed)}" if changed else "all documents agree with the data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
