"""Answers of judges that are nearly what was asked for: the JSON objects of a text, and slips that leave no doubt.

Forgiven is what can mean one thing: a raw line break in a string, `\\'`, a comment, a comma before a bracket, "a" or
"Candidate A" for A, "3/4" or [3] for 3, "A > B" for a ranking. What can mean two things is left as it is, and is then a
problem that the judge is told of: "8/10", two names for one candidate, points in place of places.

A judge may quote a candidate who attacks it. So an object inside another is none of its answers, and neither is one
that stands in a candidate's text; and where something that looks like a verdict cannot be parsed, `has_broken_verdict`
says so. Whatever comes, the time is linear in its length.
"""

import json
import re
import unicodedata
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from app.domain.judging import Rubric

# The objects of a text.

_WORK_FACTOR: Final = 8
"""Most decoded characters, as a multiple of the answer's length: an answer may open thousands of objects and close
none."""
_MOST_TRIES: Final = 5_000
"""Most places where an object may begin; the last ones of a text."""
_BLANK: Final = " \t\r\n"
_OTHER_BLANKS: Final = "\u00a0\u1680\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff"
"""Blank and invisible characters that JSON does not know."""
_JSON_OPENING: Final = re.compile(r'\{[ \t\r\n]*"')
_TRAILING_COMMA: Final = re.compile(r",[ \t\r\n]*[}\]]?\Z")
_SYNTAX: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]|,(?=[ \t\r\n]*[}\]])|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)'
    rf"|[{_OTHER_BLANKS}]",
    re.DOTALL,
)
"""Strings, brackets, commas before a closing bracket, comments, and blanks that JSON does not know. `*+` never gives
back what it took, so that a string without an end is read once."""
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(.)', re.DOTALL)
_LONGEST_GAP: Final = 200
"""Blank characters between a comma and the bracket behind it, or before an object."""
_ANY_BLANK: Final = _BLANK + "\u00a0\u1680\u202f\u205f\u2060\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200E)))
_PLAIN_VALUE: Final = re.compile(r"(?:-?[0-9.]{1,20}|true|false|null)\Z")
_WORD: Final = re.compile(r"\w{1,40}\Z")
_IN_LIST: Final = re.compile(r",[ \t\r\n]*\Z")
_VERDICT_NAME: Final = re.compile(
    r"""["'\u201c](?:verdicts|(?:criteri(?:a|on)[ _-]?)?scores)["'\u201d]?[ \t\r\n]*:"""
    r"""|[{,][ \t\r\n]*(?:verdicts|(?:criteri(?:a|on)[ _-]?)?scores)[ \t\r\n]*:(?=[ \t\r\n]*[{\["'0-9-])""",
    re.I,
)
"""In any spelling that is meant for a name: what is not read must be noticed all the same."""


class _DuplicateKey:
    """Marks the value of a duplicate key."""


DUPLICATE: Final = _DuplicateKey()


@dataclass(frozen=True)
class FoundObject:
    """An object of a text that is inside no other."""

    value: Mapping[str, object]
    start: int
    end: int


def _build_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        value |= {name: DUPLICATE for name in value if counts[name] > 1}
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_object, strict=False)
"""Not `strict`: takes raw line breaks and tabs in strings."""


def decode_whole(text: str) -> dict[str, object] | None:
    """The object that is all of `text`, if it alone of all objects in it may be an answer. None too when some are in
    its strings, or may be."""
    objects = answers = 0

    def note_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        nonlocal objects, answers
        part = _build_object(pairs)
        objects += bool(pairs)
        answers += may_be_answer(part)
        return part

    try:
        value = json.JSONDecoder(object_pairs_hook=note_object, strict=False).decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not may_be_answer(value) or answers > 1:
        return None
    return value if objects == min(len(_JSON_OPENING.findall(text)), _MOST_TRIES) else None


def list_objects(text: str) -> list[FoundObject]:
    """In their order. Of two objects, one inside the other, the outer one, also where it cannot be parsed."""
    found: list[FoundObject] = []
    work, done = _WORK_FACTOR * len(text) + 1000, 0
    for opening in deque(_JSON_OPENING.finditer(text), maxlen=_MOST_TRIES):
        start = opening.start()
        if start < done or _is_inside(text, start, done):
            continue
        value, end = _decode_at(text, start)
        work -= end - start
        if value is not None:
            found.append(FoundObject(value, start, end))
            done = end
        if work <= 0:
            break
    return found


def _is_inside(text: str, start: int, done: int) -> bool:
    """Whether an object is the value of a field of another, or stands in a list behind something that is no object.
    The object before, if it could be parsed, ended at `done`."""
    before = text[max(0, start - _LONGEST_GAP) : start]
    if _IN_LIST.search(before):
        behind = text[max(done, start - _LONGEST_GAP) : start]  # all of it, at thousands of places, would be quadratic
        return _follows_plain_value(before) or (
            bool(behind.strip(_BLANK + ",")) and before.rstrip(_BLANK + ",")[-1:] in ("}", "]", '"')
        )
    return _follows_name(before)


# Both look from the end: a pattern would begin at each of two hundred places, and that thousands of times.


def _follows_plain_value(before: str) -> bool:
    """Whether a list stands before, as in `[1, `."""
    rest = before.rstrip(_BLANK + ",")
    value = _PLAIN_VALUE.search(rest[-20:])
    return value is not None and rest[: len(rest) - len(value[0])].rstrip(_BLANK)[-1:] in ("[", ",")


def _follows_name(before: str) -> bool:
    """Whether a field's name stands before, in any spelling, as in `"draft": [` and `{draft: /* mine */ `."""
    rest = before.rstrip(_ANY_BLANK + "[")
    if rest.endswith("*/"):
        rest = rest[: max(0, rest.rfind("/*"))].rstrip(_ANY_BLANK + "[")
    if not rest.endswith(":"):
        return False
    rest = rest[:-1].rstrip(_ANY_BLANK)
    word = _WORD.search(rest[-40:])
    bare = "" if word is None else rest[: len(rest) - len(word[0])].rstrip(_ANY_BLANK)
    return rest.endswith(('"', "'", "\u201d")) or bare.endswith("{")


def _decode_at(text: str, start: int) -> tuple[dict[str, object] | None, int]:
    """The object that begins at `start`, if it is one, and up to where the text was read."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if not _is_mendable(text, error):
            return None, error.pos
        mended, end = _mend_syntax(text, start)
        try:
            value = _DECODER.decode(mended)
        except (ValueError, RecursionError):
            return None, max(end, error.pos)
    except (ValueError, RecursionError):
        # a number with thousands of digits, or nesting beyond reason: neither is an answer
        return None, len(text)
    return (value if isinstance(value, dict) else None), end


def _is_mendable(text: str, error: json.JSONDecodeError) -> bool:
    """Whether a slip of syntax is why `text` could not be decoded."""
    if error.msg.startswith("Invalid \\"):
        return True
    sign = text[error.pos : error.pos + 1]
    if sign == "/" or (sign and _SYNTAX.fullmatch(sign) is not None and sign not in '{}[]",'):
        return True
    return _TRAILING_COMMA.search(text, max(0, error.pos - _LONGEST_GAP), error.pos + 1) is not None


def _mend_syntax(text: str, start: int) -> tuple[str, int]:
    """The object that begins at `start`, without slips of syntax, and where it ends."""
    parts: list[str] = []
    depth, done = 0, start
    for match in _SYNTAX.finditer(text, start):
        sign = match.group()
        if sign[0] == '"':
            if "\\" in sign:
                parts += [text[done : match.start()], _ESCAPE.sub(_keep_escape, sign)]
                done = match.end()
        elif sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                return "".join((*parts, text[done : match.end()])), match.end()
        else:
            parts += [text[done : match.start()], "" if sign == "," else " "]
            done = match.end()
    return "", len(text)


def _keep_escape(match: re.Match[str]) -> str:
    """A backslash before anything that needs none is left out."""
    return match.group() if match[1] is None else match[1]


# What wraps an answer, and what only quotes one.

_WRAPPERS: Final = frozenset(
    ("answer", "result", "response", "output", "evaluation", "judgement", "judgment", "final", "json", "arguments")
)
_LONGEST_OPENING: Final = 120
"""Characters of a quotation that are compared: the first 40 of any verdict can be guessed."""
_MOST_SHORT: Final = 200
_SCORED_NUMBER: Final = re.compile(r"[0-4]\.[0-9]{4}")


def unwrap_text(text: str) -> str:
    """The text of an answer that is one JSON string."""
    stripped = text.strip()
    if not stripped.startswith('"{') and not stripped.startswith('"\\n'):
        return text
    try:
        value = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def unwrap_answer(value: Mapping[str, object], written: str) -> tuple[Mapping[str, object], str]:
    """What is in an object of a single field that is called as answers are, and how it was written."""
    if len(value) != 1:
        return value, written
    ((name, inner),) = value.items()
    if _fold(name) not in _WRAPPERS:
        return value, written
    inside = inner if isinstance(inner, str) else written.partition(":")[2].rstrip()[:-1]
    if isinstance(inner, str):
        inner = decode_whole(inner.strip())
    return (inner, inside) if isinstance(inner, dict) and may_be_answer(inner) else (value, written)


@dataclass(frozen=True)
class CandidateTexts:
    """What candidates wrote."""

    texts: Sequence[str]

    @cached_property
    def _folded(self) -> Sequence[str]:
        return [_fold_quoted(text) for text in self.texts]

    def hold(self, written: str) -> bool:
        """Whether one of them says this, but for blank space and case."""
        if not any("{" in text for text in self.texts):
            return False
        sought = _fold_quoted(written)
        return any(sought in text for text in self._folded)

    def mention(self, tag: str) -> bool:
        return any(tag in text for text in self.texts)

    @cached_property
    def _openings(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """What stands where they name scores: beginnings, and what is shorter since the text ends there."""
        shown = [
            text[match.start() : match.start() + _LONGEST_OPENING]
            for text in self._folded
            for match in _VERDICT_NAME.finditer(text)
        ]
        short = tuple({each for each in shown if len(each) < _LONGEST_OPENING})
        return frozenset(shown).difference(short), short[:_MOST_SHORT]

    def open_with(self, written: str) -> bool:
        """Whether a text that names scores begins as one of theirs does there."""
        whole, short = self._openings
        folded = _fold_quoted(written)
        return folded[:_LONGEST_OPENING] in whole or any(_ends_with(folded, each) for each in short)


_GOES_ON: Final = re.compile(r"""(?<=:)[{\[]|(?<=[{,])["'\u201c]|(?<=\[)[{"]|\w{0,60}["'\u201d]:""")
"""What makes more of an answer out of the beginning of one."""


def _ends_with(folded: str, short: str) -> bool:
    """Whether a quotation of a short text ends where that does. One that goes on as JSON does is no quotation: its
    beginning is that of any verdict."""
    return folded.startswith(short) and _GOES_ON.match(folded, len(short)) is None


_FIRST_NAME: Final = re.compile(r"""[{\[ \t\r\n]{1,20}["'\u201c]?([\w -]{1,40})""")


def _begins_answer(text: str, start: int) -> bool:
    """Whether an object begins there as answers do. Others, such as a call that a judge speaks of, are none."""
    name = _FIRST_NAME.match(text, start)
    return name is not None and _fold(name[1]) in _FIELDS


def has_broken_verdict(text: str, found: Sequence[FoundObject], start: int, candidates: CandidateTexts) -> bool:
    """Whether, from `start` on, something names scores, is in no object that could be parsed, and is no candidate's."""
    # An object behind the last one that never closes may have been cut off before its scores.
    opening = _JSON_OPENING.search(text, max(found[-1].end, start) if found else start)
    if opening is not None and _begins_answer(text, opening.start()) and not _mend_syntax(text, opening.start())[0]:
        return True
    starts = [each.start for each in found]
    for match in _VERDICT_NAME.finditer(text, start):
        place = bisect_right(starts, match.start()) - 1
        inside = place >= 0 and match.start() < found[place].end
        if not inside and not candidates.open_with(text[match.start() : match.start() + 2 * _LONGEST_OPENING]):
            return True
    return False


def _fold_quoted(text: str) -> str:
    """Expected scores, which stand in place of whole ones, are rounded."""
    return "".join(_SCORED_NUMBER.sub(lambda match: f"{float(match.group()):.0f}", text).split()).casefold()


# Slips in names and values.

_FIELDS: Final[Mapping[str, str]] = {
    **{name: name for name in ("verdicts", "scores", "ranking", "defects", "claims", "notes", "candidate")},
    **dict.fromkeys(("criteriascores", "criterionscores"), "scores"),
}
_LISTED: Final = ("claims", "defects")
_SCORE_NAMES: Final = frozenset(("score", "value", "rating"))
_SCALE_NAMES: Final = frozenset(("max", "maximum", "min", "minimum", "of", "outof", "total", "scale", "range"))
"""What may be the end of another scale, as any number beside a score may."""
_PLACE_NAMES: Final = frozenset(("rank", "place", "position"))
_LONGEST_NAME: Final = 60
_LONGEST_NUMBER: Final = 40
_MOST_RANKED: Final = 2_000
"""Characters of a ranking that is a text."""
_LETTER: Final = re.compile(r"(?:(?:candidate|reply|response|option)[\s_#:.\-]*)?([a-z]{1,3})")
_AROUND_LETTER: Final = " \t\r\n*_`\"'()[]:.,"
_NUMBER: Final = re.compile(r"\+?([0-9](?:[.,][0-9]{0,6})?)(?: ?(?:/|out of) ?4(?:\.0{1,6})?)?")
_AROUND_NUMBER: Final = " \t\r\n*_`\"'"
_OUTSIDE: Final = re.compile(r"[\W_]+")

_Resolve = Callable[[str], str | None]


def may_be_answer(value: Mapping[str, object]) -> bool:
    if "verdicts" in value or is_list(value):
        return True
    named = name_fields(value)
    return named is not value and ("verdicts" in named or is_list(named))


def is_list(answer: Mapping[str, object]) -> bool:
    """Whether an object is a whole answer that lists, not a part of one with entries."""
    scores = answer.get("scores")
    if scores is None or "verdicts" in answer or "candidate" in answer:
        return False
    by_letter = isinstance(scores, dict) and all(
        each is None or isinstance(each, dict | list) for each in scores.values()
    )
    return by_letter or "ranking" in answer or "notes" in answer


def name_fields(value: Mapping[str, object]) -> Mapping[str, object]:
    """With the names of an answer's fields where it has other spellings of them."""
    return _rename(value, lambda name: _FIELDS.get(_fold(name)))


@dataclass(frozen=True)
class Names:
    """What an answer may name."""

    letters: Sequence[str]
    criteria: Sequence[str]
    codes: Sequence[str] = ()

    @classmethod
    def from_rubric(cls, letters: Sequence[str], rubric: Rubric) -> "Names":
        codes = tuple(rule.code for rule in rubric.defects)
        return cls(letters, tuple(criterion.name for criterion in rubric.criteria), codes)

    @cached_property
    def _by_fold(self) -> Mapping[str, str]:
        return _index_by_fold(self.criteria)

    @cached_property
    def _codes_by_fold(self) -> Mapping[str, str]:
        return _index_by_fold(self.codes)

    def find_letter(self, name: str) -> str | None:
        """ "a", "Candidate A", "**A**" and A with invisible characters are A."""
        if name in self.letters:
            return name
        if len(name) > _LONGEST_NAME:
            return None
        match = _LETTER.fullmatch(_drop_invisible(name).strip(_AROUND_LETTER).casefold())
        return match[1].upper() if match is not None and match[1].upper() in self.letters else None

    def find_criterion(self, name: str) -> str | None:
        """Case, blanks, hyphens and underscores tell no two criteria apart, where they tell none of the rubric's."""
        return name if name in self.criteria else self._by_fold.get(_fold(name))

    def find_code(self, name: str) -> str | None:
        return name if name in self.codes else self._codes_by_fold.get(_fold(name))


def mend_slips(value: Mapping[str, object], names: Names) -> dict[str, object]:
    """The same answer as it was meant, as far as that leaves no doubt. Two names for one thing become DUPLICATE."""
    answer = dict(name_fields(value))
    if isinstance(scores := answer.get("scores"), dict):
        answer["scores"] = _mend_table(scores, names)
    if isinstance(verdicts := answer.get("verdicts"), list):
        answer["verdicts"] = [_mend_entry(each, names) if isinstance(each, dict) else each for each in verdicts]
    for field in _LISTED:
        if isinstance(items := answer.get(field), list):
            answer[field] = [_mend_item(each, names) if isinstance(each, dict) else each for each in items]
    if isinstance(notes := answer.get("notes"), dict):
        answer["notes"] = _rename(notes, names.find_letter)
    if "ranking" in answer:
        answer["ranking"] = _mend_ranking(answer["ranking"], names)
    return answer


def _mend_table(scores: Mapping[str, object], names: Names) -> dict[str, object]:
    """By criterion and letter, or by letter and criterion."""
    by_letter = all(names.find_letter(name) and not names.find_criterion(name) for name in scores)
    outer, inner = (names.find_letter, names.find_criterion) if by_letter else (names.find_criterion, names.find_letter)
    table: dict[str, object] = {}
    for name, row in _rename(scores, outer).items():
        listed = row if by_letter else _turn_list(row)
        table[name] = _mend_row(listed, inner) if isinstance(listed, dict) else listed
    return table


def _turn_list(row: object) -> object:
    """`[{"candidate": "A", "score": 3}, …]` as `{"A": 3, …}`."""
    if not isinstance(row, list) or not row:
        return row
    pairs: list[tuple[str, object]] = []
    for item in row:
        name = item.get("candidate") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str):
            return row
        pairs.append((name, item))
    return _build_object(pairs)


def _mend_row(row: Mapping[str, object], find: _Resolve) -> dict[str, object]:
    return {name: _mend_score(score) for name, score in _rename(row, find).items()}


def _mend_entry(entry: Mapping[str, object], names: Names) -> dict[str, object]:
    mended = dict(_mend_item(name_fields(entry), names))
    if isinstance(scores := mended.get("scores"), dict):
        mended["scores"] = _mend_row(scores, names.find_criterion)
    if isinstance(defects := mended.get("defects"), list):
        mended["defects"] = [_mend_item(each, names) if isinstance(each, dict) else each for each in defects]
    return mended


def _mend_item(item: Mapping[str, object], names: Names) -> Mapping[str, object]:
    """Of a list by candidate."""
    mended = item
    for field, find in (("candidate", names.find_letter), ("code", names.find_code)):
        named = item.get(field)
        known = find(named) if isinstance(named, str) else None
        if known is not None and known != named:
            mended = {**mended, field: known}
    return mended


def _mend_score(score: object) -> object:
    if type(score) is int or type(score) is float or score is None:
        return score
    if isinstance(score, list) and len(score) == 1:
        score = score[0]
    if isinstance(score, dict):
        named = [each for name, each in score.items() if _fold(name) in _SCORE_NAMES]
        has_scale = any(
            _fold(name) in _SCALE_NAMES or isinstance(each, int | float)
            for name, each in score.items()
            if _fold(name) not in _SCORE_NAMES
        )
        score = named[0] if len(named) == 1 and not has_scale else score
    if not isinstance(score, str) or len(score) > _LONGEST_NUMBER:
        return score
    match = _NUMBER.fullmatch(_drop_invisible(score).strip(_AROUND_NUMBER).casefold())
    return score if match is None else float(match[1].replace(",", "."))


def _mend_ranking(ranking: object, names: Names) -> object:
    """As a list of tiers, best first."""
    if isinstance(ranking, dict):
        ranking = _order_places(ranking)
    if isinstance(ranking, str) and len(ranking) <= _MOST_RANKED and ">" in ranking:
        ranking = _split_ranking(ranking)
    if not isinstance(ranking, list):
        return ranking
    if len(ranking) == 1 and isinstance(ranking[0], str) and ">" in ranking[0][:_MOST_RANKED]:
        ranking = _split_ranking(ranking[0])
    elif ranking and all(isinstance(each, dict) for each in ranking):
        ranking = _order_by_place(ranking)
    return [_mend_tier(tier, names) for tier in ranking]


def _split_ranking(ranking: str) -> list[object]:
    return [[*tier.split("=")] for tier in ranking.split(">")]


def _order_places(ranking: Mapping[str, object]) -> object:
    """Of `{"1": "A", "2": ["B", "C"]}`, also where a tie takes as many places as it has names. Letters as names are
    left: their numbers may be points."""
    places = {name: int(name) for name in ranking if name.isascii() and name.isdigit() and len(name) <= 3}
    ordered = sorted(places, key=places.__getitem__)
    if len(places) < len(ranking) or not ordered or places[ordered[0]] > 1:
        return ranking
    steps = [places[after] - places[before] for before, after in pairwise(ordered)]
    taken = [_count_tied(ranking[name]) for name in ordered[:-1]]
    # With other gaps they are no places either.
    return [ranking[name] for name in ordered] if steps in ([1] * len(steps), taken) else ranking


def _count_tied(tier: object) -> int:
    if isinstance(tier, str):
        return tier[:_MOST_RANKED].count("=") + 1
    return len(tier) if isinstance(tier, list) else 1


def _order_by_place(ranking: Sequence[Mapping[str, object]]) -> list[object]:
    """Of `[{"rank": 1, "candidate": "A"}, …]`; equal places are tied."""
    tiers: dict[int, list[object]] = {}
    for item in ranking:
        places = [place for name, place in item.items() if _fold(name) in _PLACE_NAMES]
        place = places[0] if len(places) == 1 else None
        if type(place) is not int or not isinstance(item.get("candidate"), str):
            return list(ranking)
        tiers.setdefault(place, []).append(item["candidate"])
    return [tiers[place] for place in sorted(tiers)]


def _mend_tier(tier: object, names: Names) -> object:
    if isinstance(tier, str) and "=" in tier[:_MOST_RANKED]:
        tier = [*tier.split("=")]
    if isinstance(tier, str):
        return names.find_letter(tier) or tier
    if not isinstance(tier, list):
        return tier
    flat = [each[0] if isinstance(each, list) and len(each) == 1 and len(tier) == 1 else each for each in tier]
    return [names.find_letter(each) or each if isinstance(each, str) else each for each in flat]


def _rename(value: Mapping[str, object], find: _Resolve) -> Mapping[str, object]:
    """`value` itself where nothing has another name."""
    known = {name: find(name) or name for name in value}
    if all(name == other for name, other in known.items()):
        return value
    return _build_object([(known[name], each) for name, each in value.items()])


def _index_by_fold(names: Iterable[str]) -> Mapping[str, str]:
    folded = [(_fold(name), name) for name in names]
    counts = Counter(fold for fold, _ in folded)
    return {fold: name for fold, name in folded if counts[fold] == 1}


def _fold(name: str) -> str:
    return _OUTSIDE.sub("", name).casefold() if len(name) <= _LONGEST_NAME else name


def _drop_invisible(text: str) -> str:
    return "".join(_iterate_visible(unicodedata.normalize("NFKC", text)))


def _iterate_visible(text: str) -> Iterator[str]:
    for sign in text:
        if unicodedata.category(sign) != "Cf":
            yield sign
