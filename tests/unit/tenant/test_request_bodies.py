"""Request bodies: equal for every strategy, and of the configured lengths."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenant.parameters import ParameterError
from tenant.request_bodies import BODY_DEFAULTS, BodyFactory, body_factory

IDS = '{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}'


def factory(params: dict[str, Any], tenant: int = 0) -> BodyFactory:
    return body_factory({**BODY_DEFAULTS, **params}, 7, tenant)


def template(tokens: dict[str, Any], body: str = IDS, seed: int = 7, tenant: int = 0, phase: int = 0) -> BodyFactory:
    lengths = {"prompt": {"mean": 5}, "output": {"mean": 5}, "shared_prefix": 0, "vocabulary": 32_000} | tokens
    return body_factory({**BODY_DEFAULTS, "body": body, "tokens": lengths}, seed, tenant, phase)


def documents(body: BodyFactory, count: int) -> list[Any]:
    return [json.loads(body(number)) for number in range(count)]


def test_bodies_depend_only_on_seed_tenant_and_phase() -> None:
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
def test_lengths_follow_the_configured_distribution(
    length: dict[str, Any], mean: float, spread: float, least: int, most: int
) -> None:
    requests = template({"prompt": length, "output": length})
    bodies = documents(requests, 4000)
    for lengths in ([len(body["prompt"]) for body in bodies], [body["max_tokens"] for body in bodies]):
        assert np.mean(lengths) == pytest.approx(mean, abs=4 * spread / np.sqrt(4000))
        assert np.std(lengths) == pytest.approx(spread, rel=0.06, abs=1e-9)
        assert least <= min(lengths) <= max(lengths) <= most


def test_token_ids_are_uniform_over_the_vocabulary() -> None:
    bodies = documents(template({"prompt": {"mean": 100}, "vocabulary": 50}), 400)
    ids = [token for body in bodies for token in body["prompt"]]
    assert set(ids) == set(range(50))
    assert np.bincount(ids).std() < 150


@pytest.mark.parametrize("body", ['{"p": {prompt_ids}}', '{"p": "{prompt}"}'])
def test_prompts_share_only_their_prefix(body: str) -> None:
    values = [each["p"] for each in documents(template({"prompt": {"mean": 30}, "shared_prefix": 10}, body), 200)]
    prompts = [value.split(" ") if isinstance(value, str) else value for value in values]
    assert {len(prompt) for prompt in prompts} == {40}
    assert len({tuple(prompt[:10]) for prompt in prompts}) == 1
    assert len({tuple(prompt[10:18]) for prompt in prompts}) == 200


def test_prompts_of_random_lengths_have_different_beginnings() -> None:
    requests = template({"prompt": {"min": 50, "max": 150}}, '{"p": {prompt_ids}}')
    prompts = [requests(number).decode() for number in range(5000)]
    assert len({tuple(prompt.split(", ", 50)[:49]) for prompt in prompts}) == 5000


def test_lines_of_a_file_are_used_in_order_from_a_random_one_on(tmp_path: Path) -> None:
    file = tmp_path / "bodies.jsonl"
    lines = [f'{{"n": {number}}}'.encode() for number in range(20)]
    file.write_bytes(b"\n".join(lines) + b"\n\n")
    firsts = set()
    for tenant in range(8):
        requests = factory({"body_lines": str(file)}, tenant)
        first = json.loads(requests(0))["n"]
        assert [requests(number) for number in range(40)] == [lines[(first + n) % 20] for n in range(40)]
        firsts.add(first)
    assert len(firsts) > 3


def test_a_line_of_a_batch_is_its_body_and_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "bodies.jsonl"
    file.write_text(
        '\ufeff{"custom_id": "a", "url": "/v1", "body": {"n": "\u00e9"}}\r\n{"custom_id": 1}\r\n{"custom_id"'
    )
    requests = factory({"body_lines": str(file)})
    bodies = {requests(number) for number in range(3)}
    assert bodies == {b'{"n": "\\u00e9"}', b'{"custom_id": 1}', b'{"custom_id"'}


def test_a_body_without_a_template_is_constant(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff{prompt}")
    for params, body in (
        ({"body": "x{prompt}"}, b"x{prompt}"),
        ({}, b""),
        ({"body_file": str(tmp_path / "body")}, None),
    ):
        requests = factory(params)
        assert requests(0) == requests(99) == (b"\xff{prompt}" if body is None else body)


def test_an_impossible_body_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(ParameterError, match="has no line"):
        factory({"body_lines": str(tmp_path / "empty")})
    with pytest.raises(ParameterError, match=r"none of \{prompt\}"):
        factory({"body": "{}", "tokens": {"prompt": {"mean": 3}}})
