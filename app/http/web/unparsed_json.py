"""What JSON is looked at for before it is parsed, in short calls: how many values it holds, and numbers too large."""

from collections.abc import Iterator
from typing import Final

from app.http.web.problems import RefusedBody

BYTES_PER_VALUE: Final = 15
"""The fewest bytes of the limit for each value: 1.7 million by default, which take a tenth of a second to parse and
less to validate. Token ids with their log-probabilities are about as long."""
_COSTS: Final = {b",": 1, b"[": 3, b"{": 3, b":": 12}
"""What the values of a body cost, about: a number is 1, a list or an object 3, a key 12, and a text
with escapes 1 more."""
WINDOW: Final = 256 * 1024
"""Bytes that are counted, or characters of a list that are parsed, in one call."""
_NUMBERS: Final = bytes(ord("0" if chr(byte).isdecimal() else "e" if chr(byte) in "eE" else " ") for byte in range(256))
_HUGE_NUMBER: Final = b"0" * 1000
"""Digits, as zeros. Writing thousands of such numbers takes half a second. A pattern takes 16 times as long to find
none."""
_LONG_NUMBER: Final = b"0" * 300
_LONG_EXPONENT: Final = b"e000"
"""Only numbers with one of these can be larger than the largest float, 1.8e308."""
TOO_MANY_DIGITS: Final = "The body holds a number with too many digits."


def require_few_values(body: bytes, most: int) -> bool:
    """Whether every number fits a float for sure: the quick parser makes infinities of others. RefusedBody for too many
    values: Python can do nothing else while one is parsed or validated in one call, so that call must be short."""
    cost, all_fit, before = 0, True, b""
    for outside, escaped in _split_texts_off(body):
        numbers = before + outside.translate(_NUMBERS, b"+")
        before = numbers[-len(_HUGE_NUMBER) :]
        if _HUGE_NUMBER in numbers:
            raise RefusedBody(400, TOO_MANY_DIGITS)
        all_fit = all_fit and not _may_overflow(numbers)
        cost += escaped + sum(outside.count(mark) * each for mark, each in _COSTS.items())
        if cost > most:
            detail = f"The body holds more than {most} values, counting a key as 12 and a list as 3"
            raise RefusedBody(413, f"{detail} (see `max_body_bytes`). Send it in several requests.")
    return all_fit


def _may_overflow(numbers: bytes) -> bool:
    """To look for exponents from the end takes a third of the time, since few bytes are their first and most their
    last."""
    return numbers.rfind(_LONG_EXPONENT) >= 0 or _LONG_NUMBER in numbers


def _split_texts_off(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Windows of what is outside of texts, each with about how many of its texts have escapes."""
    quoted, start = 0, 0
    while start < len(body):
        window = body[start : start + WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:  # no escape is cut in two
            window = body[start : start + WINDOW + 1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[quoted::2]), min(window.count(b"\\"), len(parts) // 2)
        quoted = (quoted + len(parts) - 1) % 2
