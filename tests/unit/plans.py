"""Plans of the advice's rule, for tests."""

from sharebench.read.decide.advice import Demand, Option, Plan, advise


def find_plan(option: Option, demand: Demand) -> Plan:
    """The strategy's plan that meets the demand, or one without devices and the reason."""
    return advise([option], demand)[0]
