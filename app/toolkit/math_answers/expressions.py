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
class Node:
    """`name` is a symbol or function; `value` is a number's. A quotient has what is above and below, a power base and
    exponent, a root its index (a number) and what is under it, a call its argument and, for `log`, its base."""

    kind: Kind
    parts: tuple["Node", ...] = ()
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


def expression(text: str) -> Node | None:
    """None for an invalid or too large expression."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        return _Reader(_tokens(text)).whole()
    except ValueError:
        return None


def negative(node: Node) -> Node:
    if node.kind == "number":
        return Node("number", value=-node.value)
    return product((Node("number", value=Fraction(-1)), node))


def product(parts: tuple[Node, ...]) -> Node:
    """Flat, with one -1 at most."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == "product" else (part,))]
    signs = [part for part in flat if part.kind == "number" and part.value == -1]
    rest = [part for part in flat if part not in signs]
    if len(signs) % 2:
        rest = [negative(rest[0]), *rest[1:]] if rest and rest[0].kind == "number" else [signs[0], *rest]
    return rest[0] if len(rest) == 1 else Node("product", tuple(rest or signs[:1]))


def plain(text: str) -> str:
    """With one way of writing for what has several: dashes, fractions, spaces, names of functions."""
    text = _MULTIPLIED.sub("^", text.translate(_PLAIN))
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    return text


def _tokens(text: str) -> list[str]:
    """Numbers, names, marks; a name that was written as a command is the same as one that was not."""
    written, place, tokens = plain(text).strip(), 0, list[str]()
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


class _Reader:
    """Recursive descent parser. ValueError for invalid expressions."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._place = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._sum()
        if self._next():
            raise ValueError("it goes on after the expression")
        return found

    def _next(self) -> str:
        return self._tokens[self._place]

    def _take(self, *wanted: str) -> str:
        piece = self._next()
        if wanted and piece not in wanted:
            raise ValueError(f"{wanted[0]} is missing")
        self._place += bool(piece)
        return piece

    def _sum(self) -> Node:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError("it is too deep")
        terms = [self._term()]
        while self._next() in ("+", "-"):
            terms.append(self._term())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def _term(self) -> Node:
        minus = self._signs()
        found = self._factor()
        while self._next() and self._next() not in ("+", "-", ")", "}", "]", "|"):
            sign = self._take() if self._next() in ("*", "/") else ""
            flips = self._signs() if sign else False
            other = self._factor()
            if not sign and _mixed(found, other):
                raise ValueError("a product or a mixed number")
            other = negative(other) if flips else other
            found = Node("quotient", (found, other)) if sign == "/" else product((found, other))
        return negative(found) if minus else found

    def _signs(self) -> bool:
        """Whether those that stand here make it negative: two at most."""
        signs = [self._take() for _ in range(2) if self._next() in ("+", "-")]
        return signs.count("-") == 1

    def _factor(self) -> Node:
        return self._raised(self._atom())

    def _raised(self, base: Node) -> Node:
        if self._next() != "^":
            return base
        self._take()
        exponent = self._argument(signed=True)
        if self._next() == "^":
            raise ValueError("a tower of powers")
        if exponent.kind == "number" and abs(exponent.value) > MOST_EXPONENT:
            raise ValueError("too large a power")
        return Node("power", (base, exponent))

    def _argument(self, *, signed: bool = False) -> Node:
        """In braces, or a single number, symbol or bracket."""
        if self._next() == "{":
            return self._between("{", "}")
        minus = signed and self._signs()
        found = self._atom()
        return negative(found) if minus else found

    def _between(self, opening: str, closing: str) -> Node:
        self._take(opening)
        found = self._sum()
        self._take(closing)
        return found

    def _atom(self) -> Node:
        piece = self._take()
        if piece[:1].isdecimal() or piece.startswith("."):
            return Node("number", value=Fraction(piece if piece[0] != "." else f"0{piece}"))
        if piece in ("(", "{", "["):
            self._place -= 1
            return self._between(piece, {"(": ")", "{": "}", "[": "]"}[piece])
        if piece == "frac":
            return Node("quotient", (self._digit(), self._digit()))
        if piece == "sqrt":
            return self._root()
        if piece in FUNCTIONS:
            return self._call(piece)
        if piece in CONSTANTS or piece in _GREEK or (len(piece) == 1 and piece.isalpha()):
            return self._symbol(piece)
        raise ValueError("it is no expression")

    def _symbol(self, name: str) -> Node:
        if self._next() == "_":
            self._take()
            name = f"{name}_{self._argument().latex}"
        return Node("symbol", name=name)

    def _digit(self) -> Node:
        """What a command takes without braces is one character: `\\frac12` is a half."""
        piece = self._next()
        if piece.isdecimal() and len(piece) > 1:
            self._tokens[self._place : self._place + 1] = [piece[0], piece[1:]]
        return self._argument()

    def _root(self) -> Node:
        index = self._between("[", "]") if self._next() == "[" else Node("number", value=Fraction(2))
        if index.kind != "number" or index.value.denominator != 1 or not 2 <= index.value <= 20:
            raise ValueError("a root of what order")
        return Node("root", (index, self._digit()))

    def _call(self, name: str) -> Node:
        base: tuple[Node, ...] = ()
        if name == "log" and self._next() == "_":
            self._take()
            base = (self._digit(),)
        exponent = None
        if self._next() == "^":
            self._take()
            exponent = self._argument(signed=True)
            if exponent.kind == "number" and exponent.value == -1 and name in _INVERSE:
                name, exponent = _INVERSE[name], None
        argument = self._argument_of_call()
        natural = name == "log" and (not base or base[0].name == "e")
        found = Node("call", (argument,) if natural else (argument, *base), "ln" if natural else name)
        if name == "exp":
            found = Node("power", (Node("symbol", name="e"), argument))
        return found if exponent is None else Node("power", (found, exponent))

    def _argument_of_call(self) -> Node:
        if self._next() != "|":
            return self._between("(", ")") if self._next() == "(" else self._bare()
        found = self._between("|", "|")
        if found.kind != "number" or found.value <= 0:
            raise ValueError("an absolute value that is not worked out")
        return found

    def _bare(self) -> Node:
        """The argument of a function without brackets: numbers, symbols, roots and fractions up to the next sign."""
        minus = self._signs()
        parts = [self._factor()]
        while (piece := self._next()) and (piece[0].isalnum() or piece == "/") and piece not in FUNCTIONS:
            if piece == "/":
                self._take()
                parts = [Node("quotient", (product(tuple(parts)), self._factor()))]
            else:
                parts.append(self._factor())
        found = product(tuple(parts))
        return negative(found) if minus else found


def _mixed(one: Node, other: Node) -> bool:
    return (
        one.kind == "number" and other.kind == "quotient" and {part.kind for part in other.parts} == {"number"}
    ) or (other.kind == "number")


def _number_latex(node: Node) -> str:
    above, below = abs(node.value.numerator), node.value.denominator
    bare = str(above) if below == 1 else f"\\frac{{{above}}}{{{below}}}"
    return f"\\left(-{bare}\\right)" if node.value < 0 else bare


def _symbol_latex(node: Node) -> str:
    return node.name if len(node.name) == 1 or "_" in node.name else f"\\{node.name}"


def _call_latex(node: Node) -> str:
    base = f"_{{{node.parts[1].latex}}}" if len(node.parts) > 1 else ""
    return f"\\{node.name}{base}\\left({node.parts[0].latex}\\right)"


def _root_latex(node: Node) -> str:
    index, inner = node.parts
    return f"\\sqrt{{{inner.latex}}}" if index.value == 2 else f"\\sqrt[{index.value}]{{{inner.latex}}}"


def _inside(node: Node) -> str:
    return f"\\left({node.latex}\\right)" if node.kind in ("sum", "product", "quotient", "power") else node.latex


_LATEX: Final[Mapping[Kind, Callable[[Node], str]]] = {
    "number": _number_latex,
    "symbol": _symbol_latex,
    "call": _call_latex,
    "root": _root_latex,
    "sum": lambda node: " + ".join(_inside(part) for part in node.parts),
    "product": lambda node: " \\cdot ".join(_inside(part) for part in node.parts),
    "quotient": lambda node: f"\\frac{{{node.parts[0].latex}}}{{{node.parts[1].latex}}}",
    "power": lambda node: f"{_inside(node.parts[0])}^{{{node.parts[1].latex}}}",
}
