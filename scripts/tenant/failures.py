"""Messages and exit codes of tenants that cannot continue."""

import re
import sys
import traceback

from tenant.contract import EXIT_FAILURE, EXIT_OUT_OF_MEMORY, EXIT_USAGE
from tenant.parameters import ParameterError

# The wording of CUDA, cuBLAS, cuDNN, torch and onnxruntime.
OUT_OF_MEMORY = re.compile(r"out[ _]of[ _]memory|ALLOC(ATION)?_FAILED|(failed to|can't) allocate memory", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None


def report_failure(text: str, code: int) -> int:
    """Print one line to stderr and return the exit code."""
    # A single write, so that the lines of two failing threads do not mix.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return code


def exit_code(error: Exception) -> int:
    """Print the failure, in one line if that is enough, and return the exit code."""
    if isinstance(error, ParameterError):
        return report_failure(str(error), EXIT_USAGE)
    if is_out_of_memory(error):
        message = str(error).strip() or "the allocation failed"
        return report_failure(f"out of memory: {message.splitlines()[0]}", EXIT_OUT_OF_MEMORY)
    traceback.print_exception(error)
    return EXIT_FAILURE


class RefusedError(Exception):
    """A request is not possible in the tenant's present state; the message is one line."""
