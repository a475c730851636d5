"""Parser of short expressions in LaTeX or plain text.

Read: `2\\sqrt{3}`, `\\frac{3 + \\sqrt5}{2}`, `3x^2 - 2x + 1`, `e^{2x}\\cos x`, `\\ln 3`, `5\\pi/6`, `2 - 3i`.

Not read, so never paid as an expression: integrals, sums, limits, determinants, binomials and factorials, primes of
derivatives, relations, words, two numbers side by side, `2\\frac{1}{2}` (a product or a mixed number), more than 300
parts, brackets deeper than 20, numbers of more than 40 digits, powers beyond 100. Nothing is worked out here; reading
is linear.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

MOST_CHARACTERS = 600
MOST_TOKENS = 300
MOST_DEPTH = 20
MOST_DIGITS = 40
MOST_EXPONENT = 100

Kind = Literal["number", "symbol", "sum", "product", "quotient", "power", "root", "call"]


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """`name` is a symbol or function; `value` is a number's. A quotient has what is above and below, a power base and
    exponent, a root its index (a number) and what is under it, a call its argument and, for `log`, its base."""

    kind: Kind
    parts: tuple["ExpressionNode", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)

    @property
    def latex(self) -> str:
        """One text per tree, for math-verify and for comparing: every part in brackets."""
        return _LATEX[self.kind](self)

    @property
    def symbols(self) -> frozenset[str]:
        """Its variables: `e`, `i` and pi are none."""
        own = {self.name} - CONSTANTS if self.kind == "symbol" else set[str]()
        return frozenset(own.union(*(part.symbols for part in self.parts)))


CONSTANTS: Final = frozenset({"e", "i", "pi"})
FUNCTIONS: Final = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln", "log", "exp"]
)
_GREEK = frozenset(["alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "phi", "omega"])
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}

_NAMES = "|".join(sorted({*FUNCTIONS, *_GREEK, "sqrt", "pi", "frac"}, key=len, reverse=True))
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)|\\(?P<command>[A-Za-z]+)|(?P<name>{_NAMES}|[A-Za-z])"
    r"|(?P<mark>[-+*/^_(){}\[\]|]))"
)
_REWRITTEN: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|displaystyle|textstyle|big|Big|bigl|bigr|Bigl|Bigr|limits)(?![A-Za-z])\.?", " "),
        (r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:mathrm|operatorname|text|mathit|textrm)\s?\{\s?(e|i|[a-z]{2,6})\s?\}", r" \1 "),
        (r"\\(?:cdot|times|ast)(?![A-Za-z])", "*"),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\lbrack(?![A-Za-z])", "["),
        (r"\\rbrack(?![A-Za-z])", "]"),
    )
)
_PLAIN = str.maketrans(
    {"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "π": "\\pi ", "√": "\\sqrt ", "∞": "\\infty "}
    | dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", (f"^{digit}" for digit in range(10)), strict=True))
    | dict.fromkeys("\u00a0\u2007\u202f\u2009", " ")
)
_MULTIPLIED = re.compile(r"\*\*")


def parse_expression(text: str) -> ExpressionNode | None:
    """None for an invalid or too large expression."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        return _ExpressionReader(_tokenise(text)).read_whole()
    except ValueError:
        return None


def negate(node: ExpressionNode) -> ExpressionNode:
    if node.kind == "number":
        return ExpressionNode("number", value=-node.value)
    return multiply((ExpressionNode("number", value=Fraction(-1)), node))


def multiply(parts: tuple[ExpressionNode, ...]) -> ExpressionNode:
    """Flat, with one -1 at most."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == "product" else (part,))]
    signs = [part for part in flat if part.kind == "number" and part.value == -1]
    rest = [part for part in flat if part not in signs]
    if len(signs) % 2:
        rest = [negate(rest[0]), *rest[1:]] if rest and rest[0].kind == "number" else [signs[0], *rest]
    return rest[0] if len(rest) == 1 else ExpressionNode("product", tuple(rest or signs[:1]))


def normalise_latex(text: str) -> str:
    """With one way of writing for what has several: dashes, fractions, spaces, names of functions."""
    text = _MULTIPLIED.sub("^", text.translate(_PLAIN))
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    return text


def _tokenise(text: str) -> list[str]:
    """Numbers, names, marks; a name that was written as a command is the same as one that was not."""
    written, place, tokens = normalise_latex(text).strip(), 0, list[str]()
    while place < len(written):
        found = _TOKEN.match(written, place)
        if found is None or len(tokens) == MOST_TOKENS:
            raise ValueError("it is no expression")
        token = found["number"] or found["command"] or found["name"] or found["mark"]
        if found["number"] and len(token) > MOST_DIGITS + 1:
            raise ValueError("too many digits")
        tokens.append(token)
        place = found.end()
    return tokens


class _ExpressionReader:
    """Recursive descent parser. ValueError for invalid expressions."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._place = 0
        self._depth = 0

    def read_whole(self) -> ExpressionNode:
        found = self._read_sum()
        if self._peek():
            raise ValueError("it goes on after the expression")
        return found

    def _peek(self) -> str:
        return self._tokens[self._place]

    def _take(self, *wanted: str) -> str:
        piece = self._peek()
        if wanted and piece not in wanted:
            raise ValueError(f"{wanted[0]} is missing")
        self._place += bool(piece)
        return piece

    def _read_sum(self) -> ExpressionNode:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError("it is too deep")
        terms = [self._read_term()]
        while self._peek() in ("+", "-"):
            terms.append(self._read_term())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else ExpressionNode("sum", tuple(terms))

    def _read_term(self) -> ExpressionNode:
        minus = self._read_signs()
        found = self._read_factor()
        while self._peek() and self._peek() not in ("+", "-", ")", "}", "]", "|"):
            sign = self._take() if self._peek() in ("*", "/") else ""
            flips = self._read_signs() if sign else False
            other = self._read_factor()
            if not sign and _is_mixed_number(found, other):
                raise ValueError("a product or a mixed number")
            other = negate(other) if flips else other
            found = ExpressionNode("quotient", (found, other)) if sign == "/" else multiply((found, other))
        return negate(found) if minus else found

    def _read_signs(self) -> bool:
        """Whether those that stand here make it negative: two at most."""
        signs = [self._take() for _ in range(2) if self._peek() in ("+", "-")]
        return signs.count("-") == 1

    def _read_factor(self) -> ExpressionNode:
        return self._read_power(self._read_atom())

    def _read_power(self, base: ExpressionNode) -> ExpressionNode:
        if self._peek() != "^":
            return base
        self._take()
        exponent = self._read_argument(signed=True)
        if self._peek() == "^":
            raise ValueError("a tower of powers")
        if exponent.kind == "number" and abs(exponent.value) > MOST_EXPONENT:
            raise ValueError("too large a power")
        return ExpressionNode("power", (base, exponent))

    def _read_argument(self, *, signed: bool = False) -> ExpressionNode:
        """In braces, or a single number, symbol or bracket."""
        if self._peek() == "{":
            return self._read_between("{", "}")
        minus = signed and self._read_signs()
        found = self._read_atom()
        return negate(found) if minus else found

    def _read_between(self, opening: str, closing: str) -> ExpressionNode:
        self._take(opening)
        found = self._read_sum()
        self._take(closing)
        return found

    def _read_atom(self) -> ExpressionNode:
        piece = self._take()
        if piece[:1].isdecimal() or piece.startswith("."):
            return ExpressionNode("number", value=Fraction(piece if piece[0] != "." else f"0{piece}"))
        if piece in ("(", "{", "["):
            self._place -= 1
            return self._read_between(piece, {"(": ")", "{": "}", "[": "]"}[piece])
        if piece == "frac":
            return ExpressionNode("quotient", (self._read_digit(), self._read_digit()))
        if piece == "sqrt":
            return self._read_root()
        if piece in FUNCTIONS:
            return self._read_call(piece)
        if piece in CONSTANTS or piece in _GREEK or (len(piece) == 1 and piece.isalpha()):
            return self._read_symbol(piece)
        raise ValueError("it is no expression")

    def _read_symbol(self, name: str) -> ExpressionNode:
        if self._peek() == "_":
            self._take()
            name = f"{name}_{self._read_argument().latex}"
        return ExpressionNode("symbol", name=name)

    def _read_digit(self) -> ExpressionNode:
        """What a command takes without braces is one character: `\\frac12` is a half."""
        piece = self._peek()
        if piece.isdecimal() and len(piece) > 1:
            self._tokens[self._place : self._place + 1] = [piece[0], piece[1:]]
        return self._read_argument()

    def _read_root(self) -> ExpressionNode:
        index = self._read_between("[", "]") if self._peek() == "[" else ExpressionNode("number", value=Fraction(2))
        if index.kind != "number" or index.value.denominator != 1 or not 2 <= index.value <= 20:
            raise ValueError("a root of what order")
        return ExpressionNode("root", (index, self._read_digit()))

    def _read_call(self, name: str) -> ExpressionNode:
        base: tuple[ExpressionNode, ...] = ()
        if name == "log" and self._peek() == "_":
            self._take()
            base = (self._read_digit(),)
        exponent = None
        if self._peek() == "^":
            self._take()
            exponent = self._read_argument(signed=True)
            if exponent.kind == "number" and exponent.value == -1 and name in _INVERSE:
                name, exponent = _INVERSE[name], None
        argument = self._read_call_argument()
        natural = name == "log" and (not base or base[0].name == "e")
        found = ExpressionNode("call", (argument,) if natural else (argument, *base), "ln" if natural else name)
        if name == "exp":
            found = ExpressionNode("power", (ExpressionNode("symbol", name="e"), argument))
        return found if exponent is None else ExpressionNode("power", (found, exponent))

    def _read_call_argument(self) -> ExpressionNode:
        if self._peek() != "|":
            return self._read_between("(", ")") if self._peek() == "(" else self._read_bare_argument()
        found = self._read_between("|", "|")
        if found.kind != "number" or found.value <= 0:
            raise ValueError("an absolute value that is not worked out")
        return found

    def _read_bare_argument(self) -> ExpressionNode:
        """The argument of a function without brackets: numbers, symbols, roots and fractions up to the next sign."""
        minus = self._read_signs()
        parts = [self._read_factor()]
        while (piece := self._peek()) and (piece[0].isalnum() or piece == "/") and piece not in FUNCTIONS:
            if piece == "/" and self._tokens[self._place + 1] in FUNCTIONS:
                break
            if piece == "/":
                self._take()
                parts = [ExpressionNode("quotient", (multiply(tuple(parts)), self._read_factor()))]
            else:
                parts.append(self._read_factor())
        found = multiply(tuple(parts))
        return negate(found) if minus else found


def _is_mixed_number(one: ExpressionNode, other: ExpressionNode) -> bool:
    return (
        one.kind == "number" and other.kind == "quotient" and {part.kind for part in other.parts} == {"number"}
    ) or (other.kind == "number")


def _format_number(node: ExpressionNode) -> str:
    above, below = abs(node.value.numerator), node.value.denominator
    bare = str(above) if below == 1 else f"\\frac{{{above}}}{{{below}}}"
    return f"\\left(-{bare}\\right)" if node.value < 0 else bare


def _format_symbol(node: ExpressionNode) -> str:
    return node.name if len(node.name) == 1 or "_" in node.name else f"\\{node.name}"


def _format_call(node: ExpressionNode) -> str:
    """A logarithm to a base as a quotient of natural ones, since both are the same answer."""
    if len(node.parts) > 1:
        above, below = (f"\\ln\\left({part.latex}\\right)" for part in node.parts)
        return f"\\frac{{{above}}}{{{below}}}"
    return f"\\{node.name}\\left({node.parts[0].latex}\\right)"


def _format_root(node: ExpressionNode) -> str:
    index, inner = node.parts
    return f"\\sqrt{{{inner.latex}}}" if index.value == 2 else f"\\sqrt[{index.value}]{{{inner.latex}}}"


def _format_inside(node: ExpressionNode) -> str:
    return f"\\left({node.latex}\\right)" if node.kind in ("sum", "product", "quotient", "power") else node.latex


_LATEX: Final[Mapping[Kind, Callable[[ExpressionNode], str]]] = {
    "number": _format_number,
    "symbol": _format_symbol,
    "call": _format_call,
    "root": _format_root,
    "sum": lambda node: " + ".join(_format_inside(part) for part in node.parts),
    "product": lambda node: " \\cdot ".join(_format_inside(part) for part in node.parts),
    "quotient": lambda node: f"\\frac{{{node.parts[0].latex}}}{{{node.parts[1].latex}}}",
    "power": lambda node: f"{_format_inside(node.parts[0])}^{{{node.parts[1].latex}}}",
}
