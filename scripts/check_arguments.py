"""What a newcomer's arguments of snakemake lack, in one line: Snakemake itself answers some slips with a traceback.

`make run` calls this with its arguments. It knows two options and no others.
"""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import yaml

NO_KEYS = "it has no keys; give it lines such as: repeats: 3"


def values_of(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """The values of these options: what follows one, or stands behind its `=`, up to the next option."""
    for position, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in names:
            yield from [value] if value else ()
            yield from takewhile(lambda each: not each.startswith("-"), arguments[position + 1 :])


def config_file_problem(name: str) -> str | None:
    try:
        text = Path(name).read_text(encoding="utf-8")
        # JSON with tabs is not YAML.
        with contextlib.suppress(ValueError):
            return None if isinstance(json.loads(text), dict) else NO_KEYS
        is_mapping = isinstance(yaml.safe_load(text), dict)
    except OSError as error:
        return f"{error.strerror}; name a file of the folder config/, or your own"
    except UnicodeDecodeError:
        return "it is not text in UTF-8; save it as that"
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        return f"{line}{error.problem}; it is not YAML"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"it cannot be read as YAML: {' '.join(str(error).split())[:100]}"
    return None if is_mapping else NO_KEYS


def problems(arguments: Sequence[str]) -> Iterable[str]:
    """A line for each value that Snakemake cannot use."""
    for name in values_of(("--configfile", "--configfiles"), arguments):
        if (problem := config_file_problem(name)) is not None:
            yield f"--configfile {name}: {problem}"
    for entry in values_of(("--config", "-C"), arguments):
        if "=" not in entry.lstrip("="):
            yield f"--config {entry}: it is not KEY=VALUE, such as repeats=3; targets stand before the options"


if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1:])) or None)
