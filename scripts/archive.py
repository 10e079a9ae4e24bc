"""Archive a finished study as one zip file."""

from sharebench.core import console
from sharebench.datasets import ro_crate

if __name__ == "__main__":
    console.script(ro_crate.write)
