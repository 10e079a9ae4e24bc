"""An option for a config that is there twice, of which Snakemake takes only the last."""

import shlex
from collections.abc import Iterator, Sequence

from sharebench.model.config.files import FILE_OPTIONS, PAIR_OPTIONS, values_of


def repeated_options(arguments: Sequence[str]) -> Iterator[str]:
    """A line for each option for a config that these arguments have more than once, with what to type."""
    # Snakemake also takes -Cseed=3.
    words = [each for word in arguments for each in ((word[:2], word[2:]) if word[:2] == "-C" else (word,)) if each]
    for name, names in (("--configfile", FILE_OPTIONS), ("--config", PAIR_OPTIONS)):
        count = sum(word.partition("=")[0] in names for word in words)
        if count > 1:
            together = shlex.join([name, *values_of(names, words)])
            yield f"{name} is there {count} times, and Snakemake takes only the last; write one: {together}"
