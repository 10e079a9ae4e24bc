"""The gate of a language model's answers: under a limit on SMs a server may compute nonsense, and no latency shows it.

Log-probabilities are compared token by token up to the first token that differs. Rounding alone may change that token,
since its rivals are as probable, and no token after it; nonsense differs in the log-probability of the first already.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from sharebench.model.records.types import CellRecord, TenantRecord
from sharebench.model.spec import workload_reference
from sharebench.read.gates.verdict import Verdict, at_most
from tenant.contract import Answer

# The mean difference that rounding makes, in nat, with much room: other kernels, or a batch of another size.
DIFFERENCE_NATS = 0.1
# A server that alone differs between two times may differ by a multiple of that.
SPREADS = 5.0


def _differences(one: Answer, other: Answer) -> Iterator[float]:
    """Differences of the log-probabilities, in nat, up to the first other token; infinite where one is not known."""
    if one["status"] != other["status"]:
        yield math.inf
        return
    pairs = zip(one["tokens"], one["logprobs"], other["tokens"], other["logprobs"], strict=False)
    for token, value, other_token, other_value in pairs:
        yield math.inf if value is None or other_value is None else abs(value - other_value)
        if token != other_token:
            return
    if not (one["tokens"] and other["tokens"]):
        yield math.inf


def mean_difference(one: Sequence[Answer], other: Sequence[Answer]) -> float:
    """Mean difference between the answers of two times, in nat; infinite where they cannot be compared."""
    if len(one) != len(other):
        return math.inf
    found = [value for pair in zip(one, other, strict=True) for value in _differences(*pair)]
    return sum(found) / len(found)


def answers_difference(record: CellRecord, tenant: TenantRecord) -> float | None:
    """Largest mean difference of a tenant's answers from those that the workload gives alone, in nat.

    None where the study compares none or the tenant did not end well, infinite where an answer is missing or cannot be
    compared.
    """
    alone = workload_reference(record["calibration"], tenant["workload"]).get("answers")
    if not alone or tenant["status"] != "ok":
        return None
    return max((mean_difference(alone[0], given) for given in tenant.get("answers", [])), default=math.inf)


def answers(record: CellRecord) -> Verdict | None:
    """Largest mean difference of a server's answers from those that it gives alone, in nat."""
    differences = ((answers_difference(record, tenant), tenant) for tenant in record["tenants"])
    judged = [(each, _limit(record, tenant), tenant) for each, tenant in differences if each is not None]
    if not judged:
        return None
    difference, limit, tenant = max(judged, key=lambda each: each[0] / each[1])
    if not math.isfinite(difference):
        return Verdict(None, limit, False, f"tenant {tenant['index']} {_problem(tenant)}")
    message = f"tenant {tenant['index']} answers something else than alone: log-probabilities differ by "
    return at_most(difference, limit, f"{message}{difference:.2g} nat on average")


def _limit(record: CellRecord, tenant: TenantRecord) -> float:
    alone = workload_reference(record["calibration"], tenant["workload"])["answers"]
    spread = max((mean_difference(*pair) for pair in combinations(alone, 2)), default=0.0)
    return max(DIFFERENCE_NATS, SPREADS * spread)


def _problem(tenant: TenantRecord) -> str:
    given = [answer for asked in tenant.get("answers", []) for answer in asked]
    statuses = sorted({str(answer["status"] or "no answer") for answer in given} - {"200"})
    if statuses:
        return f"answers fixed prompts with {', '.join(statuses)}, which alone it answers"
    if given:
        return "gives log-probabilities that are not finite, or none"
    return "did not answer fixed prompts in time; allow more with timeouts.record_seconds, or set answers: false"
