"""Gates of programs that two scrapes measure, where several tenants or none are known."""

from unit.factories import WINDOW_SECONDS, scraped, served
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


def test_the_busiest_client_is_judged_and_one_without_requests_is_not() -> None:
    for spent in ((0.01, 0.3), (0.3, 0.01)):
        found = verdicts(*(served(loop_tenant(0.005), client_cpu_seconds=each) for each in spent))["generator_cost"]
        assert not found["passed"]
    idle = served(loop_tenant(0.005), client_cpu_seconds=0.3) | {"sum_seconds": 0.0}
    assert verdicts(idle)["generator_cost"]["value"] is None


def test_a_reported_mean_may_be_as_long_as_the_window_of_scraped_programs_alone() -> None:
    program = scraped(loop_tenant(), UPPERS, [0, 0, 0, 400])
    for seconds, passed in ((WINDOW_SECONDS, True), (1.2 * WINDOW_SECONDS, False)):
        found = verdicts(program | {"sum_seconds": 400 * seconds})["reported_mean"]
        assert found["passed"] == passed
    assert "reported_mean" not in verdicts(loop_tenant(), served(loop_tenant()))
    assert "reported_mean" not in verdicts(loop_tenant(), program | {"count": 0, "histogram": {}})
