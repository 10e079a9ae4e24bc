"""What a tenant says, and with which exit code it ends, when it cannot go on."""

import re
import sys
import traceback

from tenant.contract import EXIT_FAILURE, EXIT_OUT_OF_MEMORY, EXIT_USAGE
from tenant.parameters import ParameterError

# How CUDA, cuBLAS, cuDNN, torch and onnxruntime say it.
OUT_OF_MEMORY = re.compile(r"out[ _]of[ _]memory|ALLOC(ATION)?_FAILED|(failed to|can't) allocate memory", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the host or the device ran out."""
    return isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)) is not None


def line(text: str, code: int) -> int:
    # One write, or the lines of two threads that fail at once mix.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return code


def exit_code(error: Exception) -> int:
    """Print the failure, in one line where that is enough; the exit code."""
    if isinstance(error, ParameterError):
        return line(str(error), EXIT_USAGE)
    if is_out_of_memory(error):
        said = str(error).strip() or "the allocation failed"
        return line(f"out of memory: {said.splitlines()[0]}", EXIT_OUT_OF_MEMORY)
    traceback.print_exception(error)
    return EXIT_FAILURE


class RefusedError(Exception):
    """What was asked for makes no sense now; the message is one line."""
