"""What form a judge is asked to answer in, the short form of answers, and JSON that is nearly right."""

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.judging import JudgeRequest, Rubric
from app.judges.claims import shorten
from app.judges.configuration import JsonMode, VerdictForm
from app.judges.presentation_order import name_places

_LISTS: Final = ("claims", "defects")
_MOST_NAMED: Final = 2
_WORK_FACTOR: Final = 8
"""Most decoded characters, as a multiple of the answer's length."""
_MOST_TRIES: Final = 5_000
_OPENING: Final = re.compile(r'\{[ \t\r\n]*"')


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


_TRAILING_COMMA: Final = re.compile(r",[ \t\r\n]*[}\]]?\Z")
_SYNTAX: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
"""Strings, brackets, and commas before a closing bracket."""
_LONGEST_GAP: Final = 200
"""Blank characters between a comma and the bracket behind it."""


def _is_trailing_comma(text: str, position: int) -> bool:
    """Whether a comma before a closing bracket is why `text` could not be decoded at `position`."""
    return _TRAILING_COMMA.search(text, max(0, position - _LONGEST_GAP), position + 1) is not None


def _drop_trailing_commas(text: str, start: int) -> tuple[str, int]:
    """The object that begins at `start`, without commas before closing brackets, and where it ends."""
    parts: list[str] = []
    depth, done = 0, start
    for found in _SYNTAX.finditer(text, start):
        sign = found.group()
        depth += (sign in "{[") - (sign in "}]")
        if sign == ",":
            parts.append(text[done : found.start()])
            done = found.end()
        elif depth == 0 and sign in "}]":
            return "".join((*parts, text[done : found.end()])), found.end()
    return "", len(text)


class _DuplicateKey:
    """Marks the value of a duplicate key."""


_DUPLICATE: Final = _DuplicateKey()


def _build_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        found |= {name: _DUPLICATE for name in found if counts[name] > 1}
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_object)


def decode_whole(text: str, is_wanted: Callable[[dict[str, object]], bool]) -> dict[str, object] | None:
    """The object that is all of `text`, if it alone of all objects in it is wanted. None too when some are in its
    strings, or may be."""
    objects = wanted = 0

    def note_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        nonlocal objects, wanted
        found = _build_object(pairs)
        objects += bool(pairs)
        wanted += is_wanted(found)
        return found

    try:
        value = json.JSONDecoder(object_pairs_hook=note_object).decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not is_wanted(value) or wanted > 1:
        return None
    return value if objects == min(len(_OPENING.findall(text)), _MOST_TRIES) else None


def _find_openings(text: str) -> "deque[re.Match[str]]":
    return deque(_OPENING.finditer(text), maxlen=_MOST_TRIES)


def iterate_objects(text: str) -> Iterator[dict[str, object]]:
    """The JSON objects in `text`, the last one first, so that quoted text before the answer cannot use up the work
    allowance."""
    work = _WORK_FACTOR * len(text) + 1000
    for opening in reversed(_find_openings(text)):
        start = opening.start()
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            work -= error.pos - start
            if _is_trailing_comma(text, error.pos):
                repaired, end = _drop_trailing_commas(text, start)
                work -= end - start
                yield from _decode_object(repaired)
        except (ValueError, RecursionError):
            # a number with thousands of digits, or nesting beyond reason: neither is an answer
            work -= len(text)
        else:
            work -= end - start
            yield value
        if work <= 0:
            return


def _decode_object(text: str) -> Iterator[dict[str, object]]:
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return
    yield value


def list_duplicates(found: Mapping[str, object]) -> list[str]:
    """The names that occur more than once in an object that _DECODER read."""
    return [name for name, value in found.items() if value is _DUPLICATE]


def choose_mode(mode: JsonMode, request: JudgeRequest | None) -> JsonMode:
    """Without a request the answer may be any JSON object."""
    return "object" if mode == "schema" and request is None else mode


def build_response_format(mode: JsonMode, request: JudgeRequest | None, form: VerdictForm = "short") -> JsonValue:
    """The `response_format` parameter; None to omit it."""
    if mode == "off":
        return None
    if mode == "object" or request is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdicts", "strict": True, "schema": _SCHEMAS[form](request)},
    }


def _build_short_schema(request: JudgeRequest) -> JsonValue:
    """The same for every group of a size, so that servers compile one grammar and keep it."""
    places = name_places(len(request.candidates))
    letter: JsonValue = {"type": "string", "enum": [*places]}
    by_letter = _build_object_schema(dict.fromkeys(places, _NUMBER))
    scores: JsonValue = {"anyOf": [by_letter, {"type": "null"}]}
    defect: dict[str, JsonValue] = {
        "candidate": letter,
        "code": _build_code_schema(request),
        "quote": {"type": "string"},
    }
    answer: dict[str, JsonValue] = {
        "defects": _build_array_schema(_build_object_schema(defect)),
        "scores": _build_object_schema({criterion.name: scores for criterion in request.rubric.criteria}),
    }
    if request.rubric.claims is not None:
        answer = {"claims": _build_array_schema(_build_object_schema({"candidate": letter, **_CLAIM_FIELDS})), **answer}
    if len(places) > 1:
        answer["ranking"] = _build_array_schema(_build_array_schema(letter))
    answer["notes"] = _build_object_schema({place: {"type": "string"} for place in places})
    return _build_object_schema(answer)


def _build_code_schema(request: JudgeRequest) -> JsonValue:
    codes: list[JsonValue] = [rule.code for rule in request.rubric.defects]
    return {"type": "string", "enum": codes} if codes else {"type": "string"}


def _build_long_schema(request: JudgeRequest) -> JsonValue:
    """As the short one, the same for every group of a size."""
    letters: JsonValue = {"type": "string", "enum": [*name_places(len(request.candidates))]}
    score: JsonValue = {"type": ["number", "null"]}  # several servers refuse schemas with bounds
    code = _build_code_schema(request)
    claim = _build_object_schema(_CLAIM_FIELDS)
    claims = {} if request.rubric.claims is None else {"claims": _build_array_schema(claim)}
    verdict = _build_object_schema(
        {
            "candidate": letters,
            "evidence": _build_array_schema({"type": "string"}),
            **claims,
            "defects": _build_array_schema(_build_object_schema({"code": code, "quote": {"type": "string"}})),
            "scores": _build_object_schema({criterion.name: score for criterion in request.rubric.criteria}),
            "note": {"type": "string"},
        }
    )
    answer: dict[str, JsonValue] = {"verdicts": _build_array_schema(verdict)}
    if len(request.candidates) > 1:
        answer["ranking"] = _build_array_schema(_build_array_schema(letters))
    return _build_object_schema(answer)


def _build_object_schema(properties: Mapping[str, JsonValue]) -> JsonValue:
    required: Sequence[JsonValue] = list(properties)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _build_array_schema(items: JsonValue) -> JsonValue:
    return {"type": "array", "items": items}


_NUMBER: Final[JsonValue] = {"type": "number"}
_CLAIM_FIELDS: Final[Mapping[str, JsonValue]] = {
    "quote": {"type": "string"},
    "source": {"type": ["string", "null"]},
    "source_quote": {"type": "string"},
}
_SCHEMAS: Final[Mapping[VerdictForm, Callable[[JudgeRequest], JsonValue]]] = {
    "long": _build_long_schema,
    "short": _build_short_schema,
}
