"""Estimates the number of tokens of a text without a tokenizer, since the policy's own is unknown."""

import re
from typing import Final

_HALF_TOKEN_CHARACTERS: Final = re.compile("[\u0250-\u2e7f]")
"""From Greek and Cyrillic to Thai, with punctuation marks beyond Latin script's."""
_WHOLE_TOKEN_CHARACTERS: Final = re.compile("[^\u0000-\u2e7f]")
"""Han, kana, Hangul syllables, emoji."""


def estimate_tokens(text: str) -> int:
    """Estimated tokens: four characters per token in Latin script, two in other alphabets, one in Han, kana and Hangul.
    Rounded up."""
    if text.isascii():
        return -(-len(text) // 4)
    dense, other = len(_WHOLE_TOKEN_CHARACTERS.findall(text)), len(_HALF_TOKEN_CHARACTERS.findall(text))
    return -(-(len(text) + other + 3 * dense) // 4)
