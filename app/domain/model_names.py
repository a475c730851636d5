"""Whether two names mean one model, as far as names can tell."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_WORD_SEPARATORS: Final = re.compile(r"[\s._-]+")
_LATEST_TAG: Final = ":latest"


def is_same_model(one: str, other: str) -> bool:
    """Compares model names regardless of provider, case and separators: `openai/GPT-4o` is `gpt-4o`,
    `/models/Qwen2.5_7B/` is `qwen2.5-7b`. Sizes, dates and other tags distinguish models."""
    return _normalise_name(one) == _normalise_name(other)


def find_same_model(model: str, others: Mapping[str, str]) -> str | None:
    """The first of `others`, models by judge, that is the same model."""
    return next((judge for judge, other in others.items() if is_same_model(model, other)), None)


def _normalise_name(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold().strip().replace("\\", "/").rstrip("/")
    return _WORD_SEPARATORS.sub("-", folded.rpartition("/")[2].removesuffix(_LATEST_TAG)).strip("-")
