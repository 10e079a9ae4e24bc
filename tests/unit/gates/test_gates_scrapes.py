"""Gates of programs that two scrapes measure, where several tenants or none are known."""

from unit.factories import scraped, served
from unit.gates.test_gates_programs import UPPERS, loop_tenant, scraped_with_error, verdicts


def test_the_scraped_tenant_with_the_largest_error_is_judged() -> None:
    for errors in ((0.3, 0.1), (0.1, 0.3)):
        found = verdicts(*(scraped_with_error("rate_error_ratio", error) for error in errors))["scrape_error"]
        assert (found["value"], found["passed"]) == (0.3, False)
        assert f"iterations of tenant {errors.index(0.3)};" in found["message"]


def test_an_unknown_error_passes_and_says_so() -> None:
    unknown = scraped(loop_tenant(), UPPERS, [400, 0, 0, 0])
    unknown["scrape"] |= {"rate_error_ratio": None, "mean_error_ratio": None}
    found = verdicts(unknown)["scrape_error"]
    assert (found["value"], found["passed"], found["message"]) == (None, True, "not known on this node")


def test_a_sum_of_nothing_contradicts_no_buckets() -> None:
    idle = scraped(loop_tenant(), UPPERS, [400, 0, 0, 0]) | {"sum_seconds": 0.0}
    assert verdicts(idle)["scrape_error"]["passed"]


def test_one_program_next_to_a_loop_may_be_elsewhere() -> None:
    found = verdicts(loop_tenant(), served(loop_tenant()) | {"cpu": None})["server_elsewhere"]
    assert (found["value"], found["passed"]) == (1, False)
