"""How much the tests look at: least in `make test`, more in `make test-long`, most with the profile `thorough`."""

from typing import Final

from hypothesis import settings

QUICK: Final = "quick"
ALL: Final = "all"
THOROUGH: Final = "thorough"
_SHARES: Final = {QUICK: 20, ALL: 4}
"""What a tier looks at is one part in so many of what `thorough` looks at."""
_FEWEST: Final = 20


def register_tiers() -> None:
    """As profiles of Hypothesis, whose option chooses one. The quick one makes the same examples each time."""
    settings.register_profile(QUICK, max_examples=_FEWEST, deadline=None, derandomize=True)
    settings.register_profile(ALL, max_examples=100, deadline=None)
    settings.register_profile(THOROUGH, max_examples=100)
    settings.load_profile(QUICK)


def is_quick() -> bool:
    return settings.get_current_profile_name() == QUICK


def is_thorough() -> bool:
    return settings.get_current_profile_name() not in _SHARES


def examples(thorough: int, *, fewest: int = _FEWEST) -> int:
    """How many the tier of this run looks at, of as many as `thorough` does."""
    share = _SHARES.get(settings.get_current_profile_name(), 1)
    return max(min(fewest, thorough), thorough // share)
