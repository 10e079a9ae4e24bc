"""Fingerprint of measuring code: it changes when the code means something else, not when it looks different.

Made from tokens, because the syntax trees of two Python versions differ for one source. What does not count:
comments, bare string statements (docstrings), white space and line breaks, `;` and one-line suites, the
spelling of plain strings and numbers, where a long string is cut, trailing commas, parentheses around a whole
expression. What a formatter may do beyond that (rewrite the inside of an f-string, wrap what a `for` runs
over) counts as a change: that costs a measurement too many, while the opposite error would keep a wrong one.
"""

from __future__ import annotations

import ast
import hashlib
import io
import keyword
import token
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DIGEST_CHARACTERS = 16

# No token of a source contains a line break once its strings are escaped.
NEWLINE, INDENT, DEDENT = "\n", "\n>", "\n<"
LAYOUT = {token.NEWLINE: NEWLINE, token.INDENT: INDENT, token.DEDENT: DEDENT}
IGNORED = {token.COMMENT, token.NL, token.ENCODING, token.ENDMARKER}
# Python 3.12 and later cut f-strings into parts.
FSTRING_START = getattr(token, "FSTRING_START", -1)
FSTRING_END = getattr(token, "FSTRING_END", -1)

# The arguments of a lambda nest like brackets, up to its colon.
CLOSERS = {"(": ")", "[": "]", "{": "}", "lambda": ":"}
COMPOUND = frozenset(
    [
        "async",
        "case",
        "class",
        "def",
        "elif",
        "else",
        "except",
        "finally",
        "for",
        "if",
        "try",
        "while",
        "with",
    ]
)
ASSIGNMENT = frozenset(["=", "+=", "-=", "*=", "/=", "//=", "%=", "@=", "&=", "|=", "^=", ">>=", "<<=", "**="])
# An expression in parentheses between one of the first and one of the second is the expression itself ...
REDUNDANT_AFTER = ASSIGNMENT | frozenset(
    ["(", "[", "{", ",", ":", "->", "return", "if", "elif", "while", "assert", "raise", "except", "with"]
)
REDUNDANT_BEFORE = frozenset([")", "]", "}", ",", ":", NEWLINE])
# ... unless one of these stands in it, which make it a tuple, a generator or a scope of its own.
MEANINGFUL_WITH = frozenset([",", "for", ":=", "yield"])
# Between these pairs, outside other brackets, parentheses around anything only break lines; a statement
# begins and ends with NEWLINE. `(x): int` declares nothing and `assert (x, y)` is always true: not here.
IDLE_BETWEEN = {operator: frozenset([NEWLINE, "="]) for operator in (NEWLINE, *ASSIGNMENT)} | {
    "return": frozenset([NEWLINE]),
    "for": frozenset(["in"]),
    "import": frozenset([NEWLINE]),
    "with": frozenset([":"]),
    "del": frozenset([NEWLINE]),
}
# In these lists a comma at the end makes no tuple.
NO_TUPLE_AFTER = frozenset(["import", "with", "del"])


def digest_of(source: str) -> str:
    """Digest of what one file means. Raises SyntaxError or tokenize.TokenError where it cannot be cut into tokens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape such as "\d" is for the interpreter to complain about
        lines = ["\0".join(_without_idle_brackets(line)) for line in _statements(_tokens(source))]
    return hashlib.sha256(NEWLINE.join(lines).encode()).hexdigest()


def fingerprint(paths: Iterable[Path], digest: Callable[[str], str] = digest_of) -> str:
    """16 hex characters that stand for what the Python files mean, in this order and under these stems.

    Equal on every supported Python. `digest` is `digest_of`, or knows what that has said before. Raises OSError for a
    file that is not there, and what `digest_of` raises.
    """
    whole = hashlib.sha256()
    for path in paths:
        with tokenize.open(path) as file:  # knows encoding cookies, and makes every line end a \n
            source = file.read()
        whole.update(f"{path.stem}\0{digest(source)}\0".encode())
    return whole.hexdigest()[:DIGEST_CHARACTERS]


def _tokens(source: str) -> Iterator[str]:
    """Canonical text of every token that counts, an f-string being one token on every Python."""
    lines = io.StringIO(source).readlines()
    depth = 0
    start = (0, 0)
    for kind, text, begin, end, _ in tokenize.generate_tokens(iter(lines).__next__):
        if kind == FSTRING_START:
            start = begin if depth == 0 else start
            depth += 1
        elif kind == FSTRING_END:
            depth -= 1
            if depth == 0:
                yield _string(_between(lines, start, end))
        elif depth or kind in IGNORED:
            continue
        elif kind == token.STRING:
            yield _string(text)
        elif kind == token.NUMBER:
            yield repr(ast.literal_eval(text))
        else:
            yield LAYOUT.get(kind, text)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Source text between two positions, each a line (from 1) and a column (from 0)."""
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right]
    return "".join([lines[first - 1][left:], *lines[first : last - 1], lines[last - 1][:right]])


def _string(text: str) -> str:
    """Canonical text of a string literal: the value of a plain one, an f-string's source without quotes."""
    prefix = text[: min(text.find(quote) for quote in "'\"" if quote in text)].lower()
    if "f" not in prefix:
        return ascii(ast.literal_eval(text))  # ascii: what repr escapes depends on Python's Unicode version
    body = text[len(prefix) :]
    width = 3 if body.startswith(("'''", '"""')) else 1
    return "".join(sorted(prefix)) + ascii(body[width:-width])


def _is_plain_string(text: str) -> bool:
    return text.startswith(("'", '"', "b'", 'b"'))


def _joined(left: str, right: str) -> str | None:
    """The one literal that two adjacent strings make; None where they are none, or one is a raw f-string."""
    if left[-1] not in "'\"" or right[-1] not in "'\"":
        return None
    pair = (left, right)
    if all(text[0] in "'\"" for text in pair) or all(text.startswith(("b'", 'b"')) for text in pair):
        return ascii(ast.literal_eval(left) + ast.literal_eval(right))
    if all(text.startswith(("'", '"', "f'", 'f"')) for text in pair):
        return "f" + ascii("".join(_fstring_body(text) for text in pair))
    return None


def _fstring_body(text: str) -> str:
    """The source, without quotes, of a canonical string as an f-string."""
    if text.startswith("f"):
        return str(ast.literal_eval(text[1:]))
    return text[1:-1].replace("{", "{{").replace("}", "}}")


def _statements(tokens: Iterable[str]) -> Iterator[list[str]]:
    """Statements and changes of indentation, without bare strings; one-line suites are indented."""
    line: list[str] = []
    brackets: list[str] = []
    after_header = in_suite = False
    for text in tokens:
        if after_header and text != NEWLINE:
            in_suite = True
            yield [INDENT]
        after_header = False
        if text in (NEWLINE, ";"):
            if line and not (len(line) == 1 and _is_plain_string(line[0])):
                yield line
            line = []
            if in_suite and text == NEWLINE:
                in_suite = False
                yield [DEDENT]
        elif text in (INDENT, DEDENT):
            yield [text]
        elif text == ":" and not brackets and line and line[0] in COMPOUND:
            yield [*line, text]
            line = []
            after_header = True
        elif line and (joined := _joined(line[-1], text)) is not None:
            line[-1] = joined
        else:
            if brackets and text == brackets[-1]:
                brackets.pop()
            elif text in CLOSERS:
                brackets.append(CLOSERS[text])
            line.append(text)


@dataclass
class _Bracket:
    """An open bracket of a statement."""

    position: int
    closer: str
    is_attached: bool
    """Whether it calls or indexes what stands before it."""
    commas: int = 0
    is_meaningful: bool = False


def _without_idle_brackets(line: list[str]) -> list[str]:
    """The statement without trailing commas in brackets and without parentheses that change nothing."""
    result: list[str] = []
    brackets: list[_Bracket] = []
    for text, following in zip(line, [*line[1:], NEWLINE], strict=True):
        if brackets and text == brackets[-1].closer:
            bracket = brackets.pop()
            before = result[bracket.position - 1] if bracket.position else NEWLINE
            is_idle = text == ")" and not brackets and following in IDLE_BETWEEN.get(before, ())
            if result[-1] == "," and not (_is_single_tuple(bracket) and before not in NO_TUPLE_AFTER):
                result.pop()
            if text == ")" and (is_idle or _is_redundant(bracket, before, following)) and result[-1] != "(":
                del result[bracket.position]
                continue
        elif text in CLOSERS:
            brackets.append(_Bracket(len(result), CLOSERS[text], _can_be_called(result)))
        elif brackets:
            brackets[-1].commas += text == ","
            brackets[-1].is_meaningful |= text in MEANINGFUL_WITH
        result.append(text)
    return result


def _can_be_called(result: list[str]) -> bool:
    """Whether a bracket after these tokens calls or indexes the last; in `match (a,):` it does not."""
    if not result or result in (["match"], ["case"]):
        return False
    last = result[-1]
    return last in (")", "]", "}") or _is_plain_string(last) or (last.isidentifier() and not keyword.iskeyword(last))


def _is_single_tuple(bracket: _Bracket) -> bool:
    """Whether the one comma in the bracket makes a tuple: `(1,)` and `x[1,]`, but not `f(1,)` and `[1,]`."""
    return bracket.commas == 1 and bracket.is_attached == (bracket.closer == "]") and bracket.closer != "}"


def _is_redundant(bracket: _Bracket, before: str, following: str) -> bool:
    """Whether parentheses hold one plain expression in a place that takes any."""
    is_plain = not (bracket.is_attached or bracket.is_meaningful)
    return is_plain and before in REDUNDANT_AFTER and following in REDUNDANT_BEFORE
