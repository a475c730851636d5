"""Loads a program whose tests are expressions, and evaluates them.

Results are JSON with marks for what JSON has not: tuples, sets, keys that are no texts, complex numbers, infinities.
Read as text. It knows no expected results, so a program gains nothing by changing it. Ours marks values with it too.
"""

import sys

HARNESS_LONG = 10_000
"""Bits; JSON holds no longer whole numbers here."""


def harness_mark(value: object) -> object:
    if isinstance(value, int) and value.bit_length() > HARNESS_LONG:
        return {"int": hex(value)}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": str(float(value))}
    if isinstance(value, complex):
        return {"complex": [harness_mark(value.real), harness_mark(value.imag)]}
    if isinstance(value, list):
        return [harness_mark(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [harness_mark(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {"set": [harness_mark(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[harness_mark(name), harness_mark(one)] for name, one in value.items()]}
    return value


HARNESS_NAMES: dict[str, object] = {"__name__": "program"}
"""Those of the program."""


def harness_load(source: str, name: str) -> None:
    sys.set_int_max_str_digits(0)  # the processor time of a program is limited anyway
    exec(compile(source, "<program>", "exec", dont_inherit=True), HARNESS_NAMES)  # noqa: S102  # in the jail
    harness_find(name)


def harness_find(name: str) -> object:
    """The function of this name, or the method of `Solution`. KeyError when there is neither."""
    if name in HARNESS_NAMES:
        return HARNESS_NAMES[name]
    solution = HARNESS_NAMES["Solution"]
    return getattr(solution() if isinstance(solution, type) else solution, name)


def harness_run(expression: str, name: str, arguments: list[object]) -> object:
    names = {"inf": float("inf"), "nan": float("nan"), **HARNESS_NAMES}
    names |= {"candidate": harness_find(name), "arguments": arguments}
    return harness_mark(eval(compile(expression, "<test>", "eval"), names))  # noqa: S307  # in the jail


def harness_record(test: str, name: str) -> object:
    """The calls that `check` makes of a program that is right, and what each gives."""
    import random

    random.seed(0)
    made: list[object] = []

    def candidate(*given: object) -> object:
        written = repr(given)
        result = harness_find(name)(*given)  # type: ignore[operator]
        made.append([written, harness_mark(result)])
        return result

    names = {**HARNESS_NAMES}
    exec(compile(test, "<test>", "exec", dont_inherit=True), names)  # noqa: S102  # in the jail
    names["check"](candidate)  # type: ignore[operator]
    return made
