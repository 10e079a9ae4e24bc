"""What a newcomer's arguments of snakemake lack, in one line: Snakemake itself answers some slips with a traceback.

`make run` calls this with its arguments.
"""

import sys

from sharebench.model.config.files import problems

if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1:], "; targets stand before the options")) or None)
