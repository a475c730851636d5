r"""Answers in LaTeX or plain text, read without algebra: expressions, their values, and boxes.

The parser is our own, since answers are untrusted: sympy's would work them out and may never be done. It
works nothing out, in linear time, and reads `2\sqrt{3}`, `\frac{3 + \sqrt5}{2}`, `3x^2 - 2x + 1`, `e^{2x}\cos x`,
`\ln 3`, `5\pi/6` and `2 - 3i`.

Not read, so never paid as an expression: integrals, sums, limits, determinants, binomials and factorials, primes of
derivatives, relations, words, two numbers side by side, `2\frac{1}{2}` (a product or a mixed number), more than 300
parts, brackets deeper than 20, numbers of more than 40 digits, powers beyond 100.
"""

import cmath
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Final, Literal

from app.toolkit.answers import MOST_TRIED, TEXT_COMMANDS, find_boxes
from app.toolkit.thoughts import strip_thinking

MOST_CHARACTERS: Final = 600
_MOST_TOKENS: Final = 300
_MOST_DEPTH: Final = 20
"""The parser and all that walks its trees recurse as deep as this."""
_MOST_DIGITS: Final = 40
_MOST_EXPONENT: Final = 100

Kind = Literal["number", "symbol", "sum", "product", "quotient", "power", "root", "call", "factorial"]


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
    r"|(?P<mark>[-+*/^_(){}\[\]|!]))"
)
_REWRITTEN: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|displaystyle|textstyle|[bB]igg?[lmr]?|limits)(?![A-Za-z])\.?", " "),
        (r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:mathrm|operatorname|text|mathit|textrm)\s?\{\s?(e|i|[a-z]{2,6})\s?\}", r" \1 "),
        (r"\+\s?\\(?:mathrm|text|mathit|textrm)\s?\{\s?C\s?\}", "+ C"),
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
"""Python's power."""


def parse_expression(text: str, *, large: bool = False) -> ExpressionNode | None:
    """None for an invalid or too large expression. `large`: also with factorials, and powers and numbers of any size,
    whose values must not be worked out."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        return _ExpressionReader(_tokenise(text, large=large), large=large).read_whole()
    except ValueError:
        return None


def _negate(node: ExpressionNode) -> ExpressionNode:
    if node.kind == "number":
        return ExpressionNode("number", value=-node.value)
    return _multiply((ExpressionNode("number", value=Fraction(-1)), node))


def _multiply(parts: tuple[ExpressionNode, ...]) -> ExpressionNode:
    """Flat, with one -1 at most."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == "product" else (part,))]
    signs = [part for part in flat if part.kind == "number" and part.value == -1]
    rest = [part for part in flat if part not in signs]
    if any(part.kind == "symbol" for part in rest):
        rest = [part for part in rest if part.kind != "number" or part.value != 1]
    if len(signs) % 2:
        rest = [_negate(rest[0]), *rest[1:]] if rest and rest[0].kind == "number" else [signs[0], *rest]
    return rest[0] if len(rest) == 1 else ExpressionNode("product", tuple(rest or signs[:1]))


def _normalise_latex(text: str) -> str:
    """With one way of writing for what has several: dashes, fractions, spaces, names of functions."""
    text = _MULTIPLIED.sub("^", text.translate(_PLAIN))
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    return text


def _tokenise(text: str, *, large: bool) -> list[str]:
    """Numbers, names, marks; a name that was written as a command is the same as one that was not."""
    written, position, tokens = _normalise_latex(text).strip(), 0, list[str]()
    while position < len(written):
        match = _TOKEN.match(written, position)
        if match is None or len(tokens) == _MOST_TOKENS:
            raise ValueError("it is no expression")
        if match["mark"] == "!" and not large:
            raise ValueError("a factorial")
        token = match["number"] or match["command"] or match["name"] or match["mark"]
        if match["number"] and len(token) > _MOST_DIGITS + 1 and not large:
            raise ValueError("too many digits")
        tokens.append(token)
        position = match.end()
    return tokens


_OF_ANGLES: Final = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_DEGREE: Final = ExpressionNode(
    "quotient", (ExpressionNode("symbol", name="pi"), ExpressionNode("number", value=Fraction(180)))
)


class _ExpressionReader:
    """Recursive descent parser. ValueError for invalid expressions."""

    def __init__(self, tokens: list[str], *, large: bool) -> None:
        self._large = large
        self._in_angle = 0
        self._tokens = [*tokens, ""]
        self._position = 0
        self._depth = 0

    def read_whole(self) -> ExpressionNode:
        node = self._read_sum()
        if self._peek():
            raise ValueError("it goes on after the expression")
        return node

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _take(self, *expected: str) -> str:
        piece = self._peek()
        if expected and piece not in expected:
            raise ValueError(f"{expected[0]} is missing")
        self._position += bool(piece)
        return piece

    def _read_sum(self) -> ExpressionNode:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ValueError("it is too deep")
        terms = [self._read_term()]
        while self._peek() in ("+", "-"):
            terms.append(self._read_term())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else ExpressionNode("sum", tuple(terms))

    def _read_term(self) -> ExpressionNode:
        minus = self._read_signs()
        node = self._read_factor()
        while self._peek() and self._peek() not in ("+", "-", ")", "}", "]", "|"):
            sign = self._take() if self._peek() in ("*", "/") else ""
            flips = self._read_signs() if sign else False
            other = self._read_factor()
            if not sign and _is_mixed_number(node, other):
                raise ValueError("a product or a mixed number")
            other = _negate(other) if flips else other
            node = ExpressionNode("quotient", (node, other)) if sign == "/" else _multiply((node, other))
        return _negate(node) if minus else node

    def _read_signs(self) -> bool:
        """Whether those that stand here make it negative: two at most."""
        signs = [self._take() for _ in range(2) if self._peek() in ("+", "-")]
        return signs.count("-") == 1

    def _read_factor(self) -> ExpressionNode:
        return self._read_power(self._read_atom())

    def _read_power(self, base: ExpressionNode) -> ExpressionNode:
        if self._peek() == "!":
            self._take()
            base = ExpressionNode("factorial", (base,))
        if self._peek() != "^":
            return base
        self._take()
        if self._in_angle and self._take_degrees():
            return _multiply((base, _DEGREE))
        exponent = self._read_argument(signed=True)
        if self._peek() == "^":
            raise ValueError("a tower of powers")
        if exponent.kind == "number" and abs(exponent.value) > _MOST_EXPONENT and not self._large:
            raise ValueError("too large a power")
        return ExpressionNode("power", (base, exponent))

    def _take_degrees(self) -> bool:
        """`\\circ` behind a power's sign; read within the argument of a function only."""
        for mark in (["circ"], ["{", "circ", "}"]):
            if self._tokens[self._position : self._position + len(mark)] == mark:
                self._position += len(mark)
                return True
        return False

    def _read_argument(self, *, signed: bool = False) -> ExpressionNode:
        """In braces, or a single number, symbol or bracket."""
        if self._peek() == "{":
            return self._read_between("{", "}")
        minus = signed and self._read_signs()
        node = self._read_atom()
        return _negate(node) if minus else node

    def _read_between(self, opening: str, closing: str) -> ExpressionNode:
        self._take(opening)
        node = self._read_sum()
        self._take(closing)
        return node

    def _read_atom(self) -> ExpressionNode:
        piece = self._take()
        if piece[:1].isdecimal() or piece.startswith("."):
            return ExpressionNode("number", value=Fraction(piece if piece[0] != "." else f"0{piece}"))
        if piece in ("(", "{", "["):
            self._position -= 1
            return self._read_between(piece, {"(": ")", "{": "}", "[": "]"}[piece])
        if piece == "frac":
            return ExpressionNode("quotient", (self._read_digit(), self._read_digit()))
        if piece == "sqrt":
            return self._read_root()
        if piece in ("binom", "dbinom", "tbinom") and self._large:
            return _write_binomial(self._read_digit(), self._read_digit())
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
            self._tokens[self._position : self._position + 1] = [piece[0], piece[1:]]
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
        self._in_angle += name in _OF_ANGLES
        argument = self._read_call_argument()
        self._in_angle -= name in _OF_ANGLES
        natural = name == "log" and (not base or base[0].name == "e")
        node = ExpressionNode("call", (argument,) if natural else (argument, *base), "ln" if natural else name)
        if name == "exp":
            node = ExpressionNode("power", (ExpressionNode("symbol", name="e"), argument))
        return node if exponent is None else ExpressionNode("power", (node, exponent))

    def _read_call_argument(self) -> ExpressionNode:
        if self._peek() != "|":
            return self._read_between("(", ")") if self._peek() == "(" else self._read_bare_argument()
        node = self._read_between("|", "|")
        if node.kind != "number" or node.value <= 0:
            raise ValueError("an absolute value that is not worked out")
        return node

    def _read_bare_argument(self) -> ExpressionNode:
        """The argument of a function without brackets: numbers, symbols, roots and fractions up to the next sign."""
        minus = self._read_signs()
        parts = [self._read_factor()]
        while (piece := self._peek()) and (piece[0].isalnum() or piece == "/") and piece not in FUNCTIONS:
            if piece == "/" and self._tokens[self._position + 1] in FUNCTIONS:
                break
            if piece == "/":
                self._take()
                parts = [ExpressionNode("quotient", (_multiply(tuple(parts)), self._read_factor()))]
            else:
                parts.append(self._read_factor())
        node = _multiply(tuple(parts))
        return _negate(node) if minus else node


def _write_binomial(above: ExpressionNode, below: ExpressionNode) -> ExpressionNode:
    """In factorials: the top number's over those of the other one and of what is left."""
    if above.kind != "number" or below.kind != "number" or not 0 <= below.value <= above.value:
        raise ValueError("a binomial of what")
    left = ExpressionNode("number", value=above.value - below.value)
    one, two, three = (ExpressionNode("factorial", (part,)) for part in (above, below, left))
    return ExpressionNode("quotient", (one, ExpressionNode("product", (two, three))))


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
    "factorial": lambda node: f"\\left({node.parts[0].latex}\\right)!",
    "power": lambda node: f"{_format_inside(node.parts[0])}^{{{node.parts[1].latex}}}",
}


# Values of expressions at a few points: enough to reject most wrong answers without algebra. In floating point, so that
# no text makes a number grow; complex, so that every root and logarithm has a value.

_POINTS: Final = 3
_NEAR: Final = 1e-9
"""Relative. Closer ones may be the same and are looked at exactly; others are not."""

_LEAST: Final = 1e-4
"""What is smaller counts as that large, where terms may cancel."""

_REAL_CONSTANTS: Final = {"e": math.e, "pi": math.pi, "i": math.nan}
_CONSTANTS: Final = {"e": complex(cmath.e), "i": 1j, "pi": complex(cmath.pi)}
_FUNCTIONS: Final[dict[str, Callable[[complex], complex]]] = {
    **{name: getattr(cmath, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"arc{name}": getattr(cmath, f"a{name}") for name in ("sin", "cos", "tan")},
    "cot": lambda at: 1 / cmath.tan(at),
    "sec": lambda at: 1 / cmath.cos(at),
    "csc": lambda at: 1 / cmath.sin(at),
    "ln": cmath.log,
    "exp": cmath.exp,
}


def may_be_equal(one: ExpressionNode, other: ExpressionNode) -> bool:
    """False where they differ at a point at which both have a value, or have none together."""
    pairs = [(_evaluate_at(one, point), _evaluate_at(other, point)) for point in range(_POINTS)]
    valued = [(first, second) for first, second in pairs if first is not None and second is not None]
    least = _LEAST if _may_cancel(one) or _may_cancel(other) else 0.0
    return bool(valued) and all(
        abs(first - second) <= _NEAR * max(least, abs(first), abs(second)) for first, second in valued
    )


def _may_cancel(node: ExpressionNode) -> bool:
    """Whether rounding may leave much of a value that is nearly nothing: of a product it does not."""
    return node.kind in ("sum", "call") or any(map(_may_cancel, node.parts))


_MOST_LETTERS: Final = 6
_STEPS: Final[tuple[int, ...]] = (*range(24), 40, 90, 200, 450, 1_000)
"""Between any two whole numbers near nought, and far from it: `\\sqrt{(x + 20)^2}` is `x + 20` down to -20. A prime
number of them, so that each letter takes its own way through all of them."""


def agree_where_real(one: ExpressionNode, other: ExpressionNode) -> bool:
    """Whether two expressions with letters under roots are the same wherever both are real numbers, as far as points
    near and far show, among them positive ones. So they may be compared as if all letters were positive: `\\sqrt{1/m}`
    is `1/\\sqrt{m}`, but `\\sqrt{x^2}` is not `x`. With one negative letter at most they must also be real at the same
    points, so `(x^2)^{1/4}` is not `\\sqrt{x}`; with more `\\sqrt{L/g}` is real and `\\sqrt{L}/\\sqrt{g}` is not."""
    letters, found = sorted(one.symbols | other.symbols), False
    for signs in product((1, -1), repeat=len(letters)):
        for point in range(len(_STEPS)):
            sizes = [_choose_size(name, place, point) for place, name in enumerate(letters)]
            at = {name: sign * size for name, sign, size in zip(letters, signs, sizes, strict=True)}
            first, second = _evaluate_real(one, at), _evaluate_real(other, at)
            if first is None or second is None:
                if first is not second and signs.count(-1) < 2:
                    return False
            elif abs(first - second) > _NEAR * max(_LEAST, abs(first), abs(second)):
                return False
            else:
                found = found or min(signs) > 0
    return found


def may_need_positive_letters(one: ExpressionNode, other: ExpressionNode) -> bool:
    """Whether `agree_where_real` may say so: it takes too long to be asked in the event loop."""
    return len(one.symbols | other.symbols) <= _MOST_LETTERS and (_has_rooted_letter(one) or _has_rooted_letter(other))


def _choose_size(name: str, place: int, point: int) -> float:
    step = _STEPS[point * (place + 1) % len(_STEPS)]
    return step + _choose_point(name, 0).real / 3


def _has_rooted_letter(node: ExpressionNode) -> bool:
    power = node.kind == "power" and (_read_exponent(node.parts[1]) or Fraction(1)).denominator > 1
    return ((power or node.kind == "root") and bool(node.symbols)) or any(map(_has_rooted_letter, node.parts))


def _read_exponent(node: ExpressionNode) -> Fraction | None:
    if node.kind == "number":
        return node.value
    inner = [_read_exponent(part) for part in node.parts]
    if node.kind == "quotient" and inner[0] is not None and inner[1]:
        return inner[0] / inner[1]
    if node.kind == "product" and len(inner) == 2 and inner[0] == -1 and inner[1] is not None:
        return -inner[1]
    return None


def _evaluate_real(node: ExpressionNode, at: Mapping[str, float]) -> float | None:
    """None where it is no real number."""
    try:
        value = _compute_real(node, at)
    except (ArithmeticError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _compute_real(node: ExpressionNode, at: Mapping[str, float]) -> float:
    if node.kind == "number":
        return float(node.value)
    if node.kind == "symbol":
        return at[node.name] if node.name in at else _REAL_CONSTANTS[node.name]
    if node.kind == "power":
        exponent = _read_exponent(node.parts[1])
        if exponent is None:
            raise ValueError("a power of what")
        return _raise_real(_compute_real(node.parts[0], at), exponent)
    inner = [_compute_real(part, at) for part in node.parts]
    if node.kind == "root":
        return _raise_real(inner[1], Fraction(1, round(inner[0])))
    if node.kind == "sum":
        return sum(inner)
    if node.kind == "product":
        return math.prod(inner)
    if node.kind == "quotient":
        return inner[0] / inner[1]
    raise ValueError("not of those")


def _raise_real(base: float, exponent: Fraction) -> float:
    if base < 0 and exponent.denominator % 2 == 0:
        raise ValueError("no real number")
    size: float = abs(base) ** float(exponent)
    return -size if base < 0 and exponent.numerator % 2 else size


def estimate_value(text: str) -> float:
    """Of a real number, to put several in order; minus infinity where it is none."""
    node = parse_expression(text)
    value = None if node is None else _evaluate_at(node, 0)
    return -math.inf if value is None else value.real


def _evaluate_at(node: ExpressionNode, point: int) -> complex | None:
    try:
        value = _evaluate(node, point)
    except (ArithmeticError, ValueError):
        return None
    return value if cmath.isfinite(value) else None


def _evaluate(node: ExpressionNode, point: int) -> complex:
    inner = [_evaluate(part, point) for part in node.parts]
    if node.kind == "number":
        return complex(float(node.value))
    if node.kind == "symbol":
        return _CONSTANTS.get(node.name) or _choose_point(node.name, point)
    if node.kind == "call":
        value = _FUNCTIONS["ln" if node.name == "log" else node.name](inner[0])
        return value if len(inner) == 1 else value / cmath.log(inner[1])
    if node.kind == "root":
        return _compute_root(inner[1], round(inner[0].real))
    return _combine_values(node, inner)


def _combine_values(node: ExpressionNode, inner: list[complex]) -> complex:
    if node.kind == "sum":
        return sum(inner)
    if node.kind == "quotient":
        return inner[0] / inner[1]
    if node.kind == "power":
        return complex(inner[0] ** inner[1])
    value = complex(1)
    for part in inner:
        value *= part
    return value


def _compute_root(under: complex, index: int) -> complex:
    if index % 2 and under.imag == 0 and under.real < 0:
        return complex(-((-under.real) ** (1 / index)))
    return cmath.sqrt(under) if index == 2 else complex(under ** (1 / index))


def _choose_point(name: str, point: int) -> complex:
    """Of a variable: between a half and three, nowhere special, and different for each."""
    spread = sum(ord(character) * (31 * at + 17) for at, character in enumerate(name)) % 997
    return complex(0.5 + ((spread * 0.618033988 + point * 0.7548776662) % 1.0) * 2.2 + 0.013 * point)


# Remainders of numbers that are too large to be worked out. Two numbers with the same remainders by all of these primes
# are equal, but for texts made by one who knows the right answer already.

_PRIMES: Final = (2**61 - 1, 2**89 - 1, 2**107 - 1)
_MOST_FACTORIAL: Final = 2_000


def find_remainders(text: str) -> tuple[int, ...] | None:
    """Of a number made of numerals, arithmetic, whole powers and factorials; None for anything else."""
    node = parse_expression(text, large=True)
    try:
        return None if node is None else tuple(_find_remainder(node, prime) for prime in _PRIMES)
    except (ValueError, ZeroDivisionError):
        return None


def _find_remainder(node: ExpressionNode, prime: int) -> int:
    if node.kind == "number":
        return node.value.numerator * pow(node.value.denominator, -1, prime) % prime
    if node.kind == "factorial":
        return _find_factorial(_require_whole(node.parts[0]), prime)
    if node.kind == "power":
        return pow(_find_remainder(node.parts[0], prime), _require_whole(node.parts[1]), prime)
    inner = [_find_remainder(part, prime) for part in node.parts]
    if node.kind == "quotient":
        return inner[0] * pow(inner[1], -1, prime) % prime
    if node.kind == "sum":
        return sum(inner) % prime
    if node.kind == "product":
        return math.prod(inner) % prime
    raise ValueError("it is no number")


def _require_whole(node: ExpressionNode) -> int:
    if node.kind != "number" or node.value.denominator != 1 or abs(node.value) > 10**9:
        raise ValueError("it is no whole number, or too large a one")
    return int(node.value)


@lru_cache(maxsize=256)
def _find_factorial(whole: int, prime: int) -> int:
    if not 0 <= whole <= _MOST_FACTORIAL:
        raise ValueError("it is too large")
    value = 1
    for factor in range(2, whole + 1):
        value = value * factor % prime
    return value


# What a reply commits to in `\boxed{…}`, outside its thinking. Boxes that look the same are one. One that is empty, or
# only says where the answer goes, is ignored.

MOST_BOXED_CHARACTERS: Final = 1_000

_BLANK = re.compile(
    rf"(?:[\s.…?_~$-]|\\(?:{TEXT_COMMANDS}|l?dots|quad|square|ldots|cdots)\b|\\[,;:! ]|[{{}}]"
    r"|<?\b(?:your|the|final|exact|answer|here|result)\b>?)*",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_APART = re.compile(r"(?<=[0-9])\s+(?=[0-9])")
"""White space between digits keeps two numbers apart: `1 2` is not 12."""
_LOOK = re.compile(r"\\(?:boldsymbol|mathbf|bm|underline|boxed|fbox|displaystyle)(?![A-Za-z])\s?")
_AT_THE_END = re.compile(r"(?<![\s.~\\])(?:\\[\s,;:!]|[\s.~]|\\)++\Z")
_TIMES = re.compile(r"\\(times|cdot)(?=\d)")
_POWER = re.compile(r"(?<=10)[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

WHY = {
    "unfinished_thinking": "the thinking never ended",
    "no_answer": "no answer was put into a box",
    "conflicting_boxes": "two boxes were filled that differ",
    "unreadable_answer": f"the box holds more than {MOST_BOXED_CHARACTERS:,} characters",
}
"""By the last flag."""


_MOST_DIFFERENT: Final = 5
"""Boxes that do not look the same, of one reply; each is graded."""


@dataclass(frozen=True, slots=True)
class CommittedBoxes:
    """`texts` are what boxes hold that do not look the same: one for most replies. They may still be equal, which the
    grader knows. Flags are the keys of `WHY`, and come without texts: `conflicting_boxes` where there are too many."""

    texts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def extract_boxes(reply: str) -> CommittedBoxes:
    """Never raises; linear in the length of `reply`."""
    spoken = strip_thinking(reply)
    if spoken.unfinished:
        return CommittedBoxes(flags=("no_answer", "unfinished_thinking"))
    different: dict[str, None] = {}
    for content in find_boxes(spoken.text, MOST_BOXED_CHARACTERS):
        if not _BLANK.fullmatch(content):
            different.pop(content.strip(), None)
            different[content.strip()] = None
            if len(different) > MOST_TRIED:
                return CommittedBoxes(flags=("conflicting_boxes",))
    if not different:
        return CommittedBoxes(flags=("no_answer",))
    texts = tuple({compact_latex(content): content for content in different}.values())
    if len(texts) > _MOST_DIFFERENT:
        return CommittedBoxes(flags=("conflicting_boxes",))
    if any(len(text) > MOST_BOXED_CHARACTERS for text in texts):
        return CommittedBoxes(flags=("unreadable_answer" if len(texts) == 1 else "conflicting_boxes",))
    return CommittedBoxes(texts)


def compact_latex(text: str) -> str:
    """Without white space, but for what keeps digits apart, and with one way of writing for what has several."""
    return _SPACE.sub("", _APART.sub("~", _normalise_latex(text)))


ROOTED: Final = "rooted"
"""Said beside two expressions that may be compared as if all their letters were positive numbers."""
DOTS: Final = "\\ldots"
EMPTY_SET: Final = "\\emptyset"
_SPELLINGS: Final = (
    (re.compile(r"\\(?:dots[bcimo]?|cdots|ldots)(?![A-Za-z])|…|\.{3}"), r"\\ldots "),
    (re.compile(r"\\(?:varnothing|emptyset)(?![A-Za-z])|∅|\\\{\s{0,8}(?:\\right\s?)?\\\}"), r"\\emptyset "),
    (re.compile(r"\\left\s?(?=\\emptyset(?![A-Za-z]))"), ""),
    (re.compile(r"(?<![\\A-Za-z^_}\]])\{\s?([^{}\\]{1,40})\\over(?![A-Za-z])\s?([^{}\\]{1,40})\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\A\s?([^{}\\]{1,40})\\over(?![A-Za-z])\s?([^{}\\]{1,40})\Z"), r"\\frac{\1}{\2}"),
    (re.compile(r"\{\s?([0-9]{1,4})\s?\\choose\s?([0-9]{1,4})\s?\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\\colon(?![A-Za-z])"), ":"),
    (re.compile(r"\\([dtc]?frac)\s?([0-9])\s?(?=\{)"), r"\\\1{\2}"),
    (re.compile(r"(\\[dtc]?frac\s?\{[^{}]{1,60}\})\s?([0-9])"), r"\1{\2}"),
    (re.compile(r"\{(\\[,;:! ])\}"), r"\1"),
)
"""What has several spellings that mean the same."""
_REPEATING = re.compile(
    r"(?<![0-9.,])([0-9]{1,15})?\.([0-9]{0,15})\\(?:overline|bar|dot)(?![A-Za-z])\s?(?:\{\s?([0-9]{1,15})\s?\}|([0-9]))"
)
_BASE = re.compile(rf"_\s?\{{?\s?\(?\s?\\(?:{TEXT_COMMANDS})\s?\{{\s?([a-z]{{3,9}})\s?\}}\s?\)?\s?\}}?")
_BASES: Final = {
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"eleven": 11, "twelve": 12, "sixteen": 16},
}


def _write_repeating(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` as a fraction: all digits, less those that do not repeat, over nines and noughts."""
    whole, once, again = match[1] or "", match[2], match[3] or match[4]
    above = int(f"{whole}{once}{again}") - int(f"{whole}{once}" or "0")
    value = Fraction(above, (10 ** len(again) - 1) * 10 ** len(once))
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}" if value.denominator > 1 else str(value.numerator)


def _write_base(match: re.Match[str]) -> str:
    return f"_{{{_BASES[match[1]]}}}" if match[1] in _BASES else match[0]


_MOD_IN_TEXT = re.compile(
    rf"\\(?:{TEXT_COMMANDS}|operatorname)\s?\{{(\s?\(?\s?mod(?:ulo)?(?![A-Za-z])[^{{}}\\]{{0,20}})\}}"
)
_MODULUS = re.compile(
    r"(\(\s?)?(?:\\[pb]?mod|(?<![A-Za-z\\])mod(?:ulo)?)(?![A-Za-z])(?:\s|\\[ ,;:]){0,4}"
    r"(?:\{\s?([0-9]{1,40}|[A-Za-z])\s?\}|([0-9]{1,40}|[A-Za-z])(?![A-Za-z]))(?(1)\s?\))"
)


def _write_modulus(match: re.Match[str]) -> str:
    return f"\\pmod{{{match[2] or match[3]}}}"


def _write_congruence(text: str) -> str:
    """With one way of writing for the modulus, behind the sign of a congruence."""
    relation, sign, modulus = text.replace("≡", "\\equiv ").partition("\\equiv")
    return relation + sign + (_MODULUS.sub(_write_modulus, _MOD_IN_TEXT.sub(r" \1 ", modulus)) if sign else "")


def tidy_latex(text: str) -> str:
    """Without dollar signs around it, a full stop behind it, and what only changes how it looks."""
    text = _SPACE.sub(" ", text)  # patterns would try every share of a long run of blanks
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = _BASE.sub(_write_base, _REPEATING.sub(_write_repeating, _write_congruence(text)))
    text = _TIMES.sub(r"\\\1 ", _POWER.sub(_write_power, text)).replace(",\\!", "{,}").replace("\\!", "")
    bare = _AT_THE_END.sub("", _LOOK.sub("", text).replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")).strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(bare) > 4 and bare.startswith(opening) and bare.endswith(closing) and bare.count("$") in (0, 2, 4):
            bare = bare[len(opening) : -len(closing)].strip()
    return _AT_THE_END.sub("", bare)


def _write_power(match: re.Match[str]) -> str:
    return f"^{{{match[0].translate(_SUPERSCRIPTS)}}}"
