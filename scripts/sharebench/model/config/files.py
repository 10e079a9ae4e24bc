"""The config as a command line gives it: files and KEY=VALUE, over the files of this project."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path

import yaml

OWN_FILES = ("strategies.yaml", "workloads.yaml", "config.yaml")
"""Files of config/ with every default."""
FILE_OPTIONS, PAIR_OPTIONS = ("--configfile", "--configfiles"), ("--config", "-C")
NO_KEYS = "it has no keys; give it lines such as: repeats: 3"
# Unlike those of Path, they are false for a path that no file system takes, and for one that we may not read.
is_file, is_folder, is_there = os.path.isfile, os.path.isdir, os.path.exists
MOST_VALUES = 100_000
"""Of a file, whose aliases may stand for exponentially many."""


class _BoundedLoader(yaml.SafeLoader):
    """Refuses a document whose aliases stand for too many values, before these are made."""

    def construct_document(self, node: yaml.Node) -> object:
        if _size(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"its aliases stand for more than {MOST_VALUES} values; write out those that it needs")
        return super().construct_document(node)


def _size(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """The number of values of a node, with those of an alias counted each time; `known` are sizes of nodes so far."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node not in known:
        known[node] = MOST_VALUES + 1  # as long as it is open: what contains itself has no end
        inner = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        known[node] = 1 + sum(_size(each, known) for each in inner)
    return known[node]


def values_of(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """The values of these options: what follows one, or stands behind its `=`, up to the next option."""
    for position, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in names:
            yield from [value] if value else ()
            yield from takewhile(lambda each: not each.startswith("-"), arguments[position + 1 :])


def config_options(files: Iterable[str], pairs: Iterable[str]) -> list[str]:
    """The options of the command `sharebench` for these files and KEY=VALUE, one each."""
    given = [*(("--configfile", file) for file in files), *(("--config", pair) for pair in pairs)]
    return [word for option in given for word in option]


def file_problem(name: str) -> str | None:
    try:
        text = Path(name).read_text(encoding="utf-8")
        # JSON with tabs is not YAML.
        with contextlib.suppress(ValueError):
            return None if isinstance(json.loads(text), dict) else NO_KEYS
        is_mapping = isinstance(yaml.load(text, Loader=_BoundedLoader), dict)
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


def problems(arguments: Sequence[str], hint: str = "") -> Iterator[str]:
    """A line for each value of the options for a config that cannot be used; the hint is for what is not KEY=VALUE."""
    for name in values_of(FILE_OPTIONS, arguments):
        if (problem := file_problem(name)) is not None:
            yield f"--configfile {name}: {problem}"
    for entry in values_of(PAIR_OPTIONS, arguments):
        if "=" not in entry.lstrip("="):
            yield f"--config {entry}: it is not KEY=VALUE, such as repeats=3{hint}"


def merged(files: Iterable[Path], pairs: Iterable[str]) -> dict[str, object]:
    """These files and pairs, a later one over an earlier one, as Snakemake merges them; all without `problems`."""
    # Imported late, since Snakemake takes a second.
    from snakemake.common.configfile import load_configfile
    from snakemake.utils import update_config

    config: dict[str, object] = {}
    for file in files:
        update_config(config, load_configfile(file))
    for key, _, text in (pair.partition("=") for pair in pairs):
        update_config(config, {key: _value(text)})
    return config


def _value(text: str) -> object:
    """A value of the command line, whose numbers stay text; text that is not YAML stays as it is."""
    with contextlib.suppress(yaml.YAMLError):
        return yaml.load(text, Loader=yaml.BaseLoader)
    return text
