"""BodyFactory of requests: the same for every strategy, of the lengths that were asked for, and cheap."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenant.parameters import ParameterError
from tenant.request_bodies import DEFAULTS, BodyFactory, body_factory

IDS = '{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}'


def of(params: dict[str, Any], tenant: int = 0) -> BodyFactory:
    return body_factory({**DEFAULTS, **params}, 7, tenant)


def template(tokens: dict[str, Any], body: str = IDS, seed: int = 7, tenant: int = 0, phase: int = 0) -> BodyFactory:
    lengths = {"prompt": {"mean": 5}, "output": {"mean": 5}, "shared_prefix": 0, "vocabulary": 32_000} | tokens
    return body_factory({**DEFAULTS, "body": body, "tokens": lengths}, seed, tenant, phase)


def asked(body: BodyFactory, count: int) -> list[Any]:
    return [json.loads(body(number)) for number in range(count)]


def test_the_same_seed_gives_the_same_bodies_whoever_asks_and_in_whatever_order() -> None:
    lengths = {"prompt": {"mean": 20, "spread": 5}, "output": {"min": 3, "max": 9}}
    one, other = template(lengths), template(lengths)
    bodies = [one(number) for number in range(50)]
    assert [other(number) for number in reversed(range(50))] == bodies[::-1]
    assert len(set(bodies)) == 50
    for different in (template(lengths, seed=8), template(lengths, tenant=1), template(lengths, phase=1)):
        assert set(bodies).isdisjoint(different(number) for number in range(50))


@pytest.mark.parametrize(
    ("length", "mean", "spread", "least", "most"),
    [
        ({"mean": 40}, 40, 0, 40, 40),
        ({"min": 10, "max": 30}, 20, np.sqrt((21**2 - 1) / 12), 10, 30),
        ({"mean": 256, "spread": 32}, 256, 32, 64, 448),
        ({"mean": 100, "spread": 50, "min": 99, "max": 101}, 100, 1, 99, 101),
        ({"mean": 2, "spread": 0.6}, 2, 0.66, 1, 5),
    ],
)
def test_lengths_are_of_the_law_that_was_asked_for(
    length: dict[str, Any], mean: float, spread: float, least: int, most: int
) -> None:
    requests = template({"prompt": length, "output": length})
    bodies = asked(requests, 4000)
    for found in ([len(each["prompt"]) for each in bodies], [each["max_tokens"] for each in bodies]):
        assert np.mean(found) == pytest.approx(mean, abs=4 * spread / np.sqrt(4000))
        assert np.std(found) == pytest.approx(spread, rel=0.06, abs=1e-9)
        assert least <= min(found) <= max(found) <= most


def test_ids_are_of_the_vocabulary_and_evenly() -> None:
    ids = [
        each for body in asked(template({"prompt": {"mean": 100}, "vocabulary": 50}), 400) for each in body["prompt"]
    ]
    assert set(ids) == set(range(50))
    assert np.bincount(ids).std() < 150


@pytest.mark.parametrize("body", ['{"p": {prompt_ids}}', '{"p": "{prompt}"}'])
def test_prompts_share_their_prefix_and_nothing_else(body: str) -> None:
    found = [each["p"] for each in asked(template({"prompt": {"mean": 30}, "shared_prefix": 10}, body), 200)]
    prompts = [each.split(" ") if isinstance(each, str) else each for each in found]
    assert {len(each) for each in prompts} == {40}
    assert len({tuple(each[:10]) for each in prompts}) == 1
    assert len({tuple(each[10:18]) for each in prompts}) == 200


def test_no_prompt_begins_as_one_of_another_length_does() -> None:
    requests = template({"prompt": {"min": 50, "max": 150}}, '{"p": {prompt_ids}}')
    prompts = [requests(number).decode() for number in range(5000)]
    assert len({tuple(each.split(", ", 50)[:49]) for each in prompts}) == 5000


def test_lines_are_taken_in_order_from_a_line_by_chance(tmp_path: Path) -> None:
    file = tmp_path / "bodies.jsonl"
    lines = [f'{{"n": {number}}}'.encode() for number in range(20)]
    file.write_bytes(b"\n".join(lines) + b"\n\n")
    firsts = set()
    for tenant in range(8):
        requests = of({"body_lines": str(file)}, tenant)
        first = json.loads(requests(0))["n"]
        assert [requests(number) for number in range(40)] == [lines[(first + n) % 20] for n in range(40)]
        firsts.add(first)
    assert len(firsts) > 3


def test_a_body_without_a_template_is_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff{prompt}")
    for params, body in (
        ({"body": "x{prompt}"}, b"x{prompt}"),
        ({}, b""),
        ({"body_file": str(tmp_path / "body")}, None),
    ):
        requests = of(params)
        assert requests(0) == requests(99) == (b"\xff{prompt}" if body is None else body)


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(ParameterError, match="has no line"):
        of({"body_lines": str(tmp_path / "empty")})
    with pytest.raises(ParameterError, match=r"none of \{prompt\}"):
        of({"body": "{}", "tokens": {"prompt": {"mean": 3}}})
