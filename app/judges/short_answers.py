"""Reads the short form of an answer, which lists by criterion and by kind what the long form lists by candidate."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from app.domain.judging import Rubric
from app.judges.claims import shorten

_LISTS: Final = ("claims", "defects")
_MOST_NAMED: Final = 2


def is_short(answer: Mapping[str, object]) -> bool:
    """Whether an object is a whole answer of the short form, not a part of one of the long form."""
    scores = answer.get("scores")
    if scores is None or "verdicts" in answer or "candidate" in answer:
        return False
    by_letter = isinstance(scores, dict) and all(each is None or isinstance(each, dict) for each in scores.values())
    return by_letter or "ranking" in answer or "notes" in answer


def expand_short_answer(
    answer: Mapping[str, object], letters: Sequence[str], rubric: Rubric, problems: list[str]
) -> dict[str, object]:
    """The same answer in the long form. What belongs to no candidate becomes a problem."""
    entries: dict[str, dict[str, object]] = {letter: {"candidate": letter, "scores": {}} for letter in letters}
    criteria = [criterion.name for criterion in rubric.criteria]
    scores = answer["scores"]
    if isinstance(scores, dict):
        _spread_scores(_by_criterion(scores, letters, criteria), entries, problems)
    else:
        problems.append('"scores" is not an object')
    for name in _LISTS:
        _deal_items(name, answer.get(name), entries, problems)
    notes = answer.get("notes")
    for letter, note in notes.items() if isinstance(notes, dict) else ():
        if letter in entries:
            entries[letter]["note"] = note
    return {**answer, "verdicts": list(entries.values())}


def _by_criterion(
    scores: Mapping[str, object], letters: Collection[str], criteria: Collection[str]
) -> Mapping[str, object]:
    """`scores`, turned round where they are listed by candidate."""
    if not scores or not all(name in letters and name not in criteria for name in scores):
        return scores
    found: dict[str, dict[str, object]] = {}
    for letter, each in scores.items():
        for criterion, score in each.items() if isinstance(each, dict) else ():
            found.setdefault(criterion, {})[letter] = score
    return found


def _spread_scores(scores: Mapping[str, object], entries: Mapping[str, dict[str, object]], problems: list[str]) -> None:
    """Null in place of the letters is null for every candidate."""
    for criterion, given in scores.items():
        if given is None:
            given = dict.fromkeys(entries)
        if not isinstance(given, dict):
            problems.append(f"{shorten(criterion)} must be an object with a number for each letter, or null")
            continue
        problems += [f"there is no candidate {shorten(letter)}" for letter in given if letter not in entries][
            :_MOST_NAMED
        ]
        for letter in entries.keys() & given.keys():
            own = entries[letter]["scores"]
            if isinstance(own, dict):
                own[criterion] = given[letter]


def _deal_items(name: str, items: object, entries: Mapping[str, dict[str, object]], problems: list[str]) -> None:
    """Gives each item to its candidate. Of what is no list nobody gets one."""
    if not isinstance(items, list):
        return
    dealt: dict[str, list[object]] = {letter: [] for letter in entries}
    for item in items:
        letter = item.get("candidate") if isinstance(item, dict) else None
        if isinstance(letter, str) and letter in dealt:
            dealt[letter].append(item)
        else:
            problems.append(f'an item of "{name}" names no candidate')
    for letter, own in dealt.items():
        entries[letter][name] = own
