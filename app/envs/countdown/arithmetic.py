"""Arithmetic over whole numbers: expressions read and worked out, and what can be reached without brackets."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Final

FRACTION: Final = r"\frac"
_SIGNS: Final = {
    **dict.fromkeys("×xX·⋅∙•∗", "*"),
    **dict.fromkeys((r"\times", r"\cdot", r"\ast"), "*"),
    **dict.fromkeys("÷∕⁄", "/"),
    r"\div": "/",
    **dict.fromkeys("−–", "-"),
    **dict.fromkeys((r"\left", r"\right", r"\,", r"\;", r"\ ", r"\!"), ""),
    **dict.fromkeys((r"\frac", r"\dfrac", r"\tfrac"), FRACTION),
}
_WRITTEN_SIGNS = "|".join(re.escape(sign) + "(?![a-z])" * sign[-1].islower() * (len(sign) > 1) for sign in _SIGNS)
_TOKEN = re.compile(rf"\s*(?:([0-9]{{1,6}})|([-+*/()\[\]{{}}=]|{_WRITTEN_SIGNS}))")
_WRAPPINGS: Final = (("```", "```"), ("`", "`"), ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))
_BRACKETS: Final = {"(": ")", "[": "]"}
MOST_TOKENS = 80
MOST_WRAPPINGS = 4
_STRENGTHS: Final = {"+": 1, "-": 1, "*": 2, "/": 2}
OPERATIONS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": Fraction.__add__,
    "-": Fraction.__sub__,
    "*": Fraction.__mul__,
    "/": Fraction.__truediv__,
}


def is_reached_without_brackets(numbers: Sequence[int], target: int) -> bool:
    """Whether any expression without brackets has the target as its value: a sum of terms, of which each multiplies and
    divides some of the numbers. Exact: all values are multiplied by the product of all numbers, so all are whole."""
    scale = prod(numbers)
    full = 2 ** len(numbers) - 1
    terms = {chosen: _find_terms(numbers, chosen, scale) for chosen in range(1, full + 1)}
    sums: dict[int, set[int]] = {0: {0}}
    for chosen in range(1, full + 1):
        sums[chosen] = _add_terms(chosen, terms, sums) if chosen != full and not chosen & 1 else set()
    wanted = target * scale
    return any(
        wanted - term in sums[full ^ chosen] or wanted + term in sums[full ^ chosen]
        for chosen in range(1, full + 1, 2)
        for term in terms[chosen]
    )


def _find_terms(numbers: Sequence[int], chosen: int, scale: int) -> set[int]:
    """Values of products and quotients of the chosen numbers, of which at least one multiplies, times `scale`."""
    factors = [number for place, number in enumerate(numbers) if chosen >> place & 1]
    found = {(1, 1)}
    for factor in factors:
        found = {pair for over, under in found for pair in ((over * factor, under), (over, under * factor))}
    if 1 not in factors:
        found.remove((1, prod(factors)))
    return {scale * over // under for over, under in found}


def _add_terms(chosen: int, terms: Mapping[int, set[int]], sums: Mapping[int, set[int]]) -> set[int]:
    """All sums over the chosen numbers: a term that holds the first of them, of either sign, and a sum of the rest."""
    lowest, found, part = chosen & -chosen, set[int](), chosen
    while part:
        if part & lowest:
            rest = sums[chosen ^ part]
            for term in terms[part]:
                found.update(term + other for other in rest)
                found.update(other - term for other in rest)
        part = (part - 1) & chosen
    return found


def _split_tokens(answer: str) -> list[str]:
    text, place, tokens = _unwrap(answer), 0, list[str]()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or len(tokens) == MOST_TOKENS:
            raise ValueError("it is no expression of numbers, + - * / and brackets")
        sign = token[1] or token[2]
        tokens.extend(filter(None, [_SIGNS.get(sign, sign)]))
        place = token.end()
    return tokens


def _unwrap(answer: str) -> str:
    """Without what stands around an expression on a page, and without a final dot."""
    text = answer.strip()
    for _ in range(MOST_WRAPPINGS):
        text = text.removesuffix(".").rstrip()
        for start, end in _WRAPPINGS:
            if len(text) > len(start + end) and text.startswith(start) and text.endswith(end):
                text = text[len(start) : -len(end)].strip()
                break
    return text


def read_expression(answer: str, target: int) -> Sequence[str]:
    """Its tokens, without `= target`. ValueError if it has other characters, or says that something else is equal."""
    tokens = _split_tokens(answer)
    if "=" not in tokens:
        return tokens
    place, last = tokens.index("="), str(target)
    sides = [tokens[:place], tokens[place + 1 :]]
    if [last] not in sides:
        raise ValueError("its equals sign has something else than the target beside it")
    return sides[1 - sides.index([last])]


def compute_value(tokens: Sequence[str]) -> Fraction:
    """ValueError if it is not an expression."""
    parser = _ExpressionParser([*tokens, ""])
    value = parser.parse_term(0)
    if parser.left != [""]:
        raise ValueError("it goes on after the expression")
    return value


@dataclass
class _ExpressionParser:
    """Precedence climbing. `left` ends with an empty token."""

    left: list[str]

    def parse_term(self, binding: int) -> Fraction:
        value = self._parse_first()
        while (strength := _STRENGTHS.get(self.left[0], 0)) > binding:
            value = OPERATIONS[self.left.pop(0)](value, self.parse_term(strength))
        return value

    def _parse_first(self) -> Fraction:
        first = self.left.pop(0)
        if first in _BRACKETS:
            return self._parse_group(_BRACKETS[first])
        if first == FRACTION:
            return self._parse_braces() / self._parse_braces()
        if first == "-":
            return -self.parse_term(_STRENGTHS["*"])
        if first.isdecimal():
            return Fraction(int(first))
        raise ValueError("it is no complete expression")

    def _parse_braces(self) -> Fraction:
        if self.left.pop(0) != "{":
            raise ValueError("it is no complete expression")
        return self._parse_group("}")

    def _parse_group(self, closing: str) -> Fraction:
        value = self.parse_term(0)
        if self.left.pop(0) != closing:
            raise ValueError("its brackets do not match")
        return value
