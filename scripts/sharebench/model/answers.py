"""What was found under a share of the SMs in the map of wrong answers (nodes/answers.json)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any


def wrong_results(found: Mapping[str, Any]) -> Counter[str]:
    """Wrong results by precision, ascending; 0 for a precision without one."""
    wrong = Counter(each["precision"] for each in found["wrong"])
    return Counter({precision: wrong[precision] for precision in sorted({*found["largest_error"], *wrong})})
