"""math-verify by itself, as its page shows it, for workers: nothing else imports this module, which brings sympy.

Its time limits are signals, which do not stop everything; they are off, and the worker's limits hold instead."""

import logging
import warnings

from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify

logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it says at every call that its limits are off
_DEFAULTS = (LatexExtractionConfig(), ExprExtractionConfig())
_WITH_LETTERS = (StringExtractionConfig(), *_DEFAULTS)
"""Its page names these for answers that are the letter of a choice."""


def says_equal(gold: str, reply: str) -> bool:
    """Of a right answer in LaTeX without dollar signs, and of a whole reply."""
    letter = gold.strip()
    targets = _WITH_LETTERS if len(letter) == 1 and letter in "ABCDEFGH" else _DEFAULTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = parse(f"${gold}$", targets, parsing_timeout=None) or parse(
            f"\\boxed{{{gold}}}", targets, parsing_timeout=None
        )
        said = parse(reply, targets, parsing_timeout=None)
        return bool(verify(right, said, timeout_seconds=None))
