"""Sentences of repeats that differ in numbers alone become one."""

import pytest

from sharebench.read.alike import merge_alike

GREW = "queue_growth: tenant {}: requests came {}% faster than they were served, so that the queue grew"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["no room"], "no room"),
        (["no room", "no room"], "no room"),
        (
            [GREW.format(1, 112), GREW.format(6, 116), GREW.format(3, 105), GREW.format(3, 105)],
            "queue_growth: tenants 1, 3, 6: requests came 105 to 116% faster than they were served, "
            "so that the queue grew",
        ),
        (["a: 9.5 s", "b: 1", "a: 10 s", "b: 1"], "a: 9.5 to 10 s; b: 1"),
        (["a3b", "ab"], "a3b; ab"),
        (["tenant 3 failed", "2 failed"], "tenant 3 failed; 2 failed"),
        (["version 580.159.04", "version 580.9"], "version 580.159.04; version 580.9"),
        (["3 iterations, 2 lost", "4 iterations, 2 lost"], "3 to 4 iterations, 2 lost"),
    ],
)
def test_sentences_that_differ_in_numbers_are_one(texts: list[str], expected: str) -> None:
    assert merge_alike("; ".join(texts)) == expected
