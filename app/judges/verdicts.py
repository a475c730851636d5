"""How a group is put to a judge, and how its answer becomes verdicts.

Candidates have letters by place, and orders are keyed hashes of the texts. An answer lists scores by criterion, quotes
for defects, and notes. A judge that writes an entry for each candidate instead (`verdicts`) is understood too, and an
answer that lists is read as if it had such entries.

Reading is tolerant of what stands around the JSON (a thought, a fence) and of slips that leave no doubt
(`loose_answers`), and strict otherwise. Every candidate, criterion and rank must be there exactly once; a quote must be
in the reply, or its defect does not count. Two verdicts that differ are none. Whatever is wrong is said in words that
the judge can act on in its corrective retry. A judge reads text that a policy wrote: no answer, however made, takes
more than linear time or raises.
"""

import base64
import hashlib
import json
import math
import re
import string
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

from pydantic import JsonValue

from app.domain.judging import Claim, Defect, JudgeRequest, Rubric, Verdict
from app.domain.scores import Criterion
from app.domain.values import MEBIBYTE, digest, remember
from app.judges.configuration import JsonMode, get_field
from app.judges.gate_wordings import (
    NO_CHARACTER,
    Reply,
    fold_text,
    may_refuse,
    refuses,
    replace_surrogates,
)
from app.judges.loose_answers import (
    DUPLICATE,
    CandidateTexts,
    FoundObject,
    Names,
    decode_whole,
    has_broken_verdict,
    is_list,
    list_objects,
    may_be_answer,
    mend_slips,
    unwrap_answer,
    unwrap_text,
)
from app.toolkit.thoughts import (
    LONGEST_TAG,
    THINKING_TAG,
    get_family,
    is_opening,
    iterate_matches,
    strip_leading_thoughts,
)

# Presentation.

_ID_LENGTH: Final = 5

MirroredOrders = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""Pairs of an order and its reverse."""


def derive_opaque_ids(key: str, texts: Sequence[str]) -> dict[str, str]:
    """One id per text, the same in every judgement of the group, for the record; judges see letters. `texts` are
    distinct. Ids are unpredictable without `key`."""
    ids: dict[str, str] = {}
    for text in sorted(texts):
        attempt = 0
        while (name := _encode_letters(_compute_keyed_hash(key, "id", str(attempt), text))) in ids.values():
            attempt += 1
        ids[text] = name
    return ids


@lru_cache(maxsize=256)
def name_places(count: int) -> tuple[str, ...]:
    """A, B, C and so on; AA follows Z."""
    return tuple(_name_place(place) for place in range(count))


def assign_letters(request: JudgeRequest) -> tuple[str, ...]:
    """What the judge calls each candidate. Letters go by place, so the mirrored order gives a reply another letter. A
    request without a mirror turns them by a hash of its task and texts, so that no place always has the same letter."""
    letters = name_places(len(request.candidates))
    if request.mirrored or not letters:
        return letters
    turn = int(digest(sorted(candidate.id for candidate in request.candidates)), 16) % len(letters)
    return letters[turn:] + letters[:turn]


def build_mirrored_orders(key: str, texts: Sequence[str], pair: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A shuffle of distinct texts and its reverse, with another shuffle for each `pair`. Independent of the order of
    `texts`."""
    shuffled = _shuffle_texts(key, texts, "order", str(pair))
    return shuffled, shuffled[::-1]


def list_mirrored_orders(key: str, texts: Sequence[str], pairs: int) -> MirroredOrders:
    """Up to `pairs` mirrored orders of which none repeats another: two texts have one pair, three have three."""
    distinct: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    number = 0
    # Half of all orders mirror the other half. From five texts on there are more than anybody asks for.
    while len(distinct) < min(pairs, math.factorial(min(len(texts), 5)) // 2):
        orders = build_mirrored_orders(key, texts, number)
        number += 1
        if not any(orders[0] in pair for pair in distinct):
            distinct.append(orders)
    return tuple(distinct)


def choose_first(key: str, texts: Sequence[str], count: int) -> int:
    """Which of `count` judges reads the group first."""
    return 0 if count == 1 else int.from_bytes(_compute_keyed_hash(key, "judge", *sorted(texts))) % count


def arrange_circle(key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The circle of neighbours for groups where not every pair is compared. Independent of the order of `texts`."""
    return _shuffle_texts(key, texts, "circle", "")


def _shuffle_texts(key: str, texts: Sequence[str], purpose: str, number: str) -> tuple[str, ...]:
    salt = base64.b16encode(_compute_keyed_hash(key, "group", *sorted(texts))).decode()
    shared = _add_parts(_begin_keyed_hash(key), (purpose, salt, number))
    hashes = {text: _add_parts(shared, (text,)).digest() for text in texts}
    return tuple(sorted(texts, key=lambda text: (hashes[text], text)))


def _compute_keyed_hash(key: str, *parts: str) -> bytes:
    return _add_parts(_begin_keyed_hash(key), parts).digest()


@lru_cache(maxsize=64)  # all hashes of a group begin with its key
def _begin_keyed_hash(key: str) -> "hashlib.blake2b":
    return hashlib.blake2b(
        digest_size=16, key=hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    )


def _add_parts(before: "hashlib.blake2b", parts: Iterable[str]) -> "hashlib.blake2b":
    """Each part is preceded by its length, so that different lists of parts never give the same bytes."""
    hashed = before.copy()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed


def _name_place(place: int) -> str:
    before, letter = divmod(place, len(string.ascii_uppercase))
    return (_name_place(before - 1) if before else "") + string.ascii_uppercase[letter]


def _encode_letters(data: bytes) -> str:
    return base64.b32encode(data[:_ID_LENGTH]).decode().lower()[:_ID_LENGTH]


# The format that a server is asked for.


def choose_mode(mode: JsonMode, request: JudgeRequest | None) -> JsonMode:
    """Without a request the answer may be any JSON object."""
    return "object" if mode == "schema" and request is None else mode


def build_response_format(mode: JsonMode, request: JudgeRequest | None) -> JsonValue:
    """The `response_format` parameter; None to omit it."""
    if mode == "off":
        return None
    if mode == "object" or request is None:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "verdicts", "strict": True, "schema": _build_answer_schema(request)},
    }


def _build_answer_schema(request: JudgeRequest) -> JsonValue:
    """The same for every group of a size, so that servers compile one grammar and keep it."""
    places = name_places(len(request.candidates))
    letter: JsonValue = {"type": "string", "enum": [*places]}
    by_letter = _build_object_schema(dict.fromkeys(places, _NUMBER_SCHEMA))
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


_NUMBER_SCHEMA: Final[JsonValue] = {"type": "number"}
_CLAIM_FIELDS: Final[Mapping[str, JsonValue]] = {
    "quote": {"type": "string"},
    "source": {"type": ["string", "null"]},
    "source_quote": {"type": "string"},
}


# Claims about events, checked against the events that the character knows. A judge may list what a reply tells of them;
# every claim is checked against the reply and the event that it names. One that no event supports is a defect.

_LONGEST_CACHED: Final = 10_000
"""Longest text, in characters, whose normalised form is cached."""
_LEAST_WEIGHT: Final = 3
"""Least letters or digits of a quote. Wide characters, such as Chinese, count twice."""


def _normalise_quote(text: str) -> str:
    """Normalises white space, quotation marks and case."""
    return _cached_quote(text) if len(text) <= _LONGEST_CACHED else _build_quote(text)


def _build_quote(text: str) -> str:
    return " ".join(fold_text(text).split())


_cached_quote: Final = remember(2 * MEBIBYTE)(_build_quote)
"""Cached, since every reading of a group quotes the same texts and cites the same events."""


@dataclass(frozen=True)
class QuotedText:
    """A text that judges quote."""

    raw: str

    @cached_property
    def normalised(self) -> str:
        return _normalise_quote(self.raw)

    def contains(self, quote: str) -> bool:
        """Whether it says the quote, but for white space, quotation marks and case. Most quotes are verbatim, and need
        nothing of that: in ASCII it takes away no letter."""
        if quote in self.raw and quote.isascii() and self.raw.isascii():
            return _is_long_enough(quote)
        sought = _normalise_quote(quote).strip("\"' …") if quote else ""
        sought = sought.removesuffix("...").removeprefix("...").strip()
        return sought in self.normalised and _is_long_enough(sought)


def _is_long_enough(quote: str) -> bool:
    weight = 0
    for letter in filter(str.isalnum, quote):  # most quotes are long enough after three
        weight += 2 if unicodedata.east_asian_width(letter) == "W" else 1
        if weight >= _LEAST_WEIGHT:
            return True
    return False


def shorten(value: object) -> str:
    """A short form for error messages."""
    text = value if isinstance(value, str) else type(value).__name__
    return json.dumps(text[:60])


_MOST_CLAIMS: Final = 40
_LONGEST_CLAIM_QUOTE: Final = 400
_MOST_EXPLAINED: Final = 5


def list_sources(request: JudgeRequest) -> Mapping[str, QuotedText]:
    """By id."""
    return {source.id: QuotedText(source.text) for source in request.sources}


def parse_claims(
    name: str, value: object, reply: QuotedText, sources: Mapping[str, QuotedText], problems: list[str]
) -> tuple[Claim, ...]:
    """Parses all claims of a candidate and verifies both quotes. Invalid claims become problems: dropping them would
    change the reply's score."""
    if not isinstance(value, list):
        problems.append(f'candidate {name} has no list "claims"')
        return ()
    if len(value) > _MOST_CLAIMS:
        problems.append(f"candidate {name} has more than {_MOST_CLAIMS} claims")
        return ()
    if not value:
        return ()
    claims = [_parse_claim(f"a claim of candidate {name}", item, reply, sources, problems) for item in value]
    return tuple(dict.fromkeys(claim for claim in claims if claim is not None))


def _parse_claim(
    where: str, item: object, reply: QuotedText, sources: Mapping[str, QuotedText], problems: list[str]
) -> Claim | None:
    quote = item.get("quote") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(quote, str):
        problems.append(f'{where} has no "quote"')
        return None
    if not reply.contains(quote):
        problems.append(f"{where}: the reply does not say {shorten(quote)}")
        return None
    source, proof = item.get("source"), item.get("source_quote")
    if source is None and "source" in item:
        return Claim(quote=_trim_quote(quote), source=None)
    if not isinstance(source, str) or source not in sources:
        problems.append(f"{where}: there is no visible event {shorten(source)}; null is for what no event supports")
        return None
    if not isinstance(proof, str) or not sources[source].contains(proof):
        problems.append(f"{where}: event {shorten(source)} does not say {shorten(proof)}")
        return None
    return Claim(quote=_trim_quote(quote), source=source, source_quote=_trim_quote(proof))


def build_unsupported_defects(rubric: Rubric, claims: Sequence[Claim]) -> tuple[Defect, ...]:
    """One defect per claim without a source."""
    if not claims or rubric.claims is None:
        return ()
    return tuple(Defect(code=rubric.claims.unsupported, quote=claim.quote) for claim in claims if claim.source is None)


def find_misused_null(verdicts: Mapping[str, Verdict], rubric: Rubric) -> str | None:
    """By the letters of candidates. A problem when candidates have claims although the criterion of claims is null."""
    if rubric.claims is None:
        return None
    criterion = rubric.claims.criterion
    claiming = [name for name, each in verdicts.items() if each.claims and each.scores.get(criterion, 0.0) is None]
    if not claiming:
        return None
    return f"{criterion} is null although {', '.join(claiming)} claims something: it then applies to every candidate"


def _explain_claims(rubric: Rubric, verdicts: Sequence[Verdict]) -> str:
    """Explains a candidate's score for claims: the claims with their sources, and the bounds that applied."""
    if rubric.claims is None or not any([verdict.claims or verdict.defects for verdict in verdicts]):
        return ""
    claims = tuple(dict.fromkeys(claim for verdict in verdicts for claim in verdict.claims))
    parts = [
        f'"{claim.quote}": {f"{claim.source}, " if claim.source else "no event"}'
        + (f'"{claim.source_quote}"' if claim.source else "")
        for claim in claims[:_MOST_EXPLAINED]
    ]
    reported = [{defect.code for defect in verdict.defects} for verdict in verdicts]
    for rule in rubric.defects if any(reported) else ():
        count = sum(rule.code in codes for codes in reported)
        if rule.bounds is not None and rule.bounds.criterion == rubric.claims.criterion and count:
            parts.append(
                f"at most {rule.bounds.at_most:g} by {rule.code} in {count} of {len(verdicts)} "
                f"{'reading' if len(verdicts) == 1 else 'readings'}"
            )
    return replace_surrogates("; ".join(parts))


def _trim_quote(quote: str) -> str:
    return replace_surrogates(quote.strip()[:_LONGEST_CLAIM_QUOTE])


def attach_claim_notes(
    rubric: Rubric, criteria: Sequence[Criterion], verdicts: Sequence[Verdict]
) -> tuple[Criterion, ...]:
    """Adds the judges' claims as a note to the criterion about claims."""
    about = "" if rubric.claims is None else rubric.claims.criterion
    note = _explain_claims(rubric, verdicts)[:_LONGEST_NOTE]
    if not note:
        return tuple(criteria)
    return tuple(
        each.model_copy(update={"note": "; ".join(filter(None, (each.note, note)))}) if each.name == about else each
        for each in criteria
    )


# Answers.

_HIGHEST: Final = 4.0
"""Judges score from 0 to 4, verdicts hold the share of that."""
PARSER_VERSION: Final = 10
"""Increase this when the same answer would be parsed differently."""

_LONGEST_ANSWER: Final = 400_000
"""Characters that are parsed, from the end: the answer follows the thought."""
_NO_OBJECT: Final = "there is no complete JSON object in the answer"
_BROKEN: Final = "the JSON of the verdict cannot be parsed, or it stands inside another object"
_TWO_VERDICTS: Final = "the answer holds two verdicts that differ: answer with one JSON object, and quote none"
_NO_SCORES: Final = '"scores" is missing or not an object'
_MISSING: Final = object()
"""Unlike null, which says that a criterion does not apply."""
_MOST_ANSWERS: Final = 50
"""Invalid answers after which no further one is looked for."""
_MOST_LOOKED: Final = 200
"""Answers, those of candidates included, after which none is looked for: each is sought in all that they wrote."""
_MOST_PROBLEMS: Final = 6
_MOST_QUOTES: Final = 10
_MOST_DEFECTS: Final = 30
_LONGEST_NOTE: Final = 600


_Scored = tuple[str, tuple[tuple[str, float | None], ...], tuple[Defect, ...]]
_Substance = tuple[tuple[_Scored, ...], tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class JudgeAnswer:
    """A valid answer. Dropped parts are listed in the verdicts' notes."""

    verdicts: tuple[Verdict, ...]
    ranking: tuple[tuple[str, ...], ...]
    is_whole: bool = field(default=False, compare=False)
    """There was nothing else in the text."""

    @property
    def substance(self) -> _Substance:
        """All that a reward depends on. Two verdicts that share it are one."""
        return tuple(_list_substance(each) for each in self.verdicts), self.ranking


@dataclass(frozen=True)
class UnusableAnswer:
    """Why an answer is invalid, in words that the judge can act on."""

    problems: tuple[str, ...]
    saw_answer: bool = field(default=True, compare=False)
    """False where nothing looked like an answer."""


def _list_substance(verdict: Verdict) -> _Scored:
    return verdict.candidate, tuple(verdict.scores.items()), verdict.defects


def parse_answer(text: str, request: JudgeRequest) -> JudgeAnswer | UnusableAnswer:
    """The JSON object in `text` that is a valid answer to `request`, else the problems of the last attempt. Two that
    differ are none: one of them may be a draft, or a candidate's. Never raises. Linear time."""
    text = unwrap_text(text[-_LONGEST_ANSWER:])
    candidates = CandidateTexts(
        # As the judge was shown them, which may quote them.
        [replace_surrogates(own) for each in request.candidates for own in {each.text, each.own or each.text}]
    )
    failure: UnusableAnswer | None = None
    for part, thought_end in _iterate_search_texts(text, candidates):
        answer = _read_text(part, thought_end, candidates, request, is_whole=part is text)
        if isinstance(answer, JudgeAnswer) or _TWO_VERDICTS in answer.problems:
            return answer
        failure = answer if failure is None or not failure.saw_answer else failure
    return failure or UnusableAnswer((_NO_OBJECT,))


def _read_text(
    text: str, thought_end: int, candidates: CandidateTexts, request: JudgeRequest, *, is_whole: bool
) -> JudgeAnswer | UnusableAnswer:
    """What ends before `thought_end` is a draft."""
    whole = decode_whole(text)
    found = list_objects(text) if whole is None else [FoundObject(whole, 0, len(text))]
    problem, looked = _NO_OBJECT, 0
    failures: list[UnusableAnswer] = []
    answers: dict[_Substance, JudgeAnswer] = {}
    for each in reversed(found):
        value, written = unwrap_answer(each.value, text[each.start : each.end])
        if not may_be_answer(value):
            problem = _NO_SCORES
            continue
        looked += 1
        if each.end <= thought_end or candidates.hold(written):
            continue
        answer = _validate_answer(value, request, is_whole=whole is not None and is_whole)
        if isinstance(answer, JudgeAnswer):
            answers.setdefault(answer.substance, answer)
        else:
            failures.append(answer)
        if len(answers) > 1:
            return UnusableAnswer((_TWO_VERDICTS,))
        if len(failures) == _MOST_ANSWERS or looked == _MOST_LOOKED:
            break
    if found and whole is None and has_broken_verdict(text, found, thought_end, candidates):
        known = failures[0].problems if failures and not answers else ()
        return UnusableAnswer((_BROKEN, *known))
    if answers:
        return next(iter(answers.values()))
    return failures[0] if failures else UnusableAnswer((problem,), saw_answer=False)


def _iterate_search_texts(text: str, candidates: CandidateTexts) -> Iterator[tuple[str, int]]:
    """The texts to search: after the judge's thought, and also everywhere when its closing tag may be part of a quote.
    The number says up to where a text is the judge's thought. A tag that a candidate wrote ends no thought."""
    said = strip_leading_thoughts(text)
    if said == text.strip():
        yield text, 0
        return
    if THINKING_TAG.match(text.lstrip()) is not None:
        yield said, 0
        return
    tags = iterate_matches(THINKING_TAG, text, LONGEST_TAG)
    closing = next((tag for tag in tags if not is_opening(tag) and get_family(tag).is_implied), None)
    if closing is None or candidates.mention(closing[0]):
        yield text, 0
        return
    yield text[closing.end() :], 0
    yield text, closing.start()


def _validate_answer(
    value: Mapping[str, object], request: JudgeRequest, *, is_whole: bool
) -> JudgeAnswer | UnusableAnswer:
    ids = {letter: candidate.id for letter, candidate in zip(assign_letters(request), request.candidates, strict=True)}
    texts = {letter: candidate.own or candidate.text for letter, candidate in zip(ids, request.candidates, strict=True)}
    value = mend_slips(value, Names.from_rubric(tuple(ids), request.rubric))
    problems = _find_duplicates(value, "the answer")
    if is_list(value):
        problems += _find_duplicates_within(value)
        value = _expand_lists(value, tuple(ids), request.rubric, problems)
    entries = _parse_entries(value, tuple(texts), problems)
    ranking = _parse_ranking(value.get("ranking"), tuple(texts), problems)
    sources = list_sources(request)
    criteria = dict.fromkeys(criterion.name for criterion in request.rubric.criteria)
    verdicts = {
        name: _parse_verdict(name, ids[name], entries[name], texts[name], request.rubric, criteria, sources, problems)
        for name in texts
        if name in entries
    }
    problems += _find_uneven_criteria(verdicts, request.rubric)
    problems += filter(None, [find_misused_null(verdicts, request.rubric)])
    if problems:
        return UnusableAnswer(tuple(replace_surrogates(problem) for problem in problems[:_MOST_PROBLEMS]))
    tiers = tuple([tuple([ids[letter] for letter in tier]) for tier in ranking])
    return JudgeAnswer(tuple(verdicts.values()), tiers, is_whole)


def _parse_entries(
    answer: Mapping[str, object], ids: Sequence[str], problems: list[str]
) -> dict[str, Mapping[str, object]]:
    listed = answer.get("verdicts")
    if not isinstance(listed, list):
        problems.append('"verdicts" is missing or not a list')
        return {}
    entries: dict[str, Mapping[str, object]] = {}
    for entry in listed:
        name = entry.get("candidate") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            problems.append('an item of "verdicts" has no "candidate"')
        elif name not in ids:
            problems.append(f"there is no candidate {shorten(name)}")
        elif name in entries:
            problems.append(f'candidate {name} occurs more than once in "verdicts"')
        else:
            problems += _find_duplicates(entry, "candidate", name)
            entries[name] = entry
    problems += [f'candidate {name} is missing from "verdicts"' for name in ids if name not in entries]
    return entries


def _parse_ranking(value: object, ids: Sequence[str], problems: list[str]) -> tuple[tuple[str, ...], ...]:
    """A bare letter counts as a tier of one. A single candidate needs no ranking."""
    if value is None and len(ids) == 1:
        return (tuple(ids),)
    if not isinstance(value, list):
        problems.append('"ranking" is missing or not a list')
        return ()
    tiers = [tier if isinstance(tier, list) else [tier] for tier in value]
    placed = [name for tier in tiers for name in tier]
    if any(not isinstance(name, str) or name not in ids for name in placed):
        problems.append('"ranking" holds something that is not the letter of a candidate')
        return ()
    counts = Counter(placed)
    problems += [f'candidate {name} occurs {counts[name]} times in "ranking"' for name in ids if counts[name] != 1]
    return tuple(tuple(tier) for tier in tiers if tier)


def _parse_verdict(
    name: str,
    candidate: str,
    entry: Mapping[str, object],
    text: str,
    rubric: Rubric,
    criteria: Mapping[str, None],
    sources: Mapping[str, QuotedText],
    problems: list[str],
) -> Verdict:
    reply = QuotedText(text)
    dropped: list[str] = []
    evidence = _parse_evidence(entry.get("evidence"), reply, dropped)
    listed = entry.get("claims")
    claims: tuple[Claim, ...] = ()
    if rubric.claims is not None and listed is not None:  # who lists none reports none
        claims = parse_claims(name, listed, reply, sources, problems)
    defects = _parse_defects(entry.get("defects"), reply, rubric, dropped)
    scores = _parse_scores(name, entry.get("scores"), criteria, dropped, problems)
    note = entry.get("note")
    remarks = [note[:_LONGEST_NOTE]] if isinstance(note, str) and note else []
    if dropped:
        remarks.append(f"(Not counted: {'; '.join(dropped[:_MOST_PROBLEMS])}.)")
    return Verdict.build_trusted(
        candidate=candidate,
        evidence=evidence,
        claims=claims,
        defects=tuple(dict.fromkeys((*defects, *build_unsupported_defects(rubric, claims)))) if claims else defects,
        scores=scores,
        note=replace_surrogates(" ".join(remarks)),
        reward=None,
    )


def _parse_scores(
    name: str, value: object, criteria: Mapping[str, None], dropped: list[str], problems: list[str]
) -> dict[str, float | None]:
    """What is no criterion counts for nothing, but every criterion must be there."""
    if not isinstance(value, dict):
        problems.append(f'candidate {name} has no "scores" object')
        return {}
    problems += _find_duplicates(value, "candidate", name)
    unknown = [f"{shorten(key)} is no criterion" for key in value if key not in criteria][:2]
    dropped += unknown
    scores: dict[str, float | None] = {}
    for criterion in criteria:
        raw = value.get(criterion, _MISSING)
        if (type(raw) is int or type(raw) is float) and 0 <= raw <= _HIGHEST:  # no bool
            scores[criterion] = raw / _HIGHEST
            continue
        if raw is None:
            scores[criterion] = None
        elif raw is _MISSING:
            problems.append(f"candidate {name} has no score for {criterion}")
        else:
            problems.append(f"candidate {name}: {criterion} must be a number from 0 to 4, or null")
    if len(scores) < len(criteria):
        problems += [f"candidate {name}: {each}" for each in unknown]
    elif all([score is None for score in scores.values()]):
        problems.append(f"candidate {name} has no score but null")
    return scores


def _find_uneven_criteria(verdicts: Mapping[str, Verdict], rubric: Rubric) -> Iterator[str]:
    """A criterion applies to all candidates or to none: null for a single one would only shift its weights."""
    if not any(None in each.scores.values() for each in verdicts.values()):
        return
    for name in (criterion.name for criterion in rubric.criteria):
        scores = {letter: each.scores[name] for letter, each in verdicts.items() if name in each.scores}
        without = [letter for letter, score in scores.items() if score is None]
        if 0 < len(without) < len(scores):
            yield (
                f"{name} is null for {', '.join(without)} and a number for others: null is for a criterion "
                "that applies to none of the candidates"
            )


def _find_duplicates_within(answer: Mapping[str, object]) -> list[str]:
    """In the objects of an answer that lists."""
    scores, notes = answer.get("scores"), answer.get("notes")
    parts = {f'"{name}"': part for name, part in (("scores", scores), ("notes", notes)) if isinstance(part, dict)}
    if isinstance(scores, dict):
        parts |= {shorten(name): part for name, part in scores.items() if isinstance(part, dict)}
    return [problem for where, part in parts.items() for problem in _find_duplicates(part, where)]


def _find_duplicates(value: Mapping[str, object], *where: str) -> list[str]:
    return [
        f"{' '.join(where)} has {shorten(name)} more than once" for name, each in value.items() if each is DUPLICATE
    ]


def _parse_evidence(value: object, reply: QuotedText, dropped: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    quotes: list[str] = []
    for quote in value[:_MOST_QUOTES]:
        if isinstance(quote, str):
            if reply.contains(quote):
                quotes.append(replace_surrogates(quote))
            else:
                dropped.append(f"the reply does not say {shorten(quote)}")
    return tuple(quotes)


def _parse_defects(value: object, reply: QuotedText, rubric: Rubric, dropped: list[str]) -> tuple[Defect, ...]:
    """Defects without a verbatim quote are dropped, but for omissions."""
    if not isinstance(value, list) or not value:
        return ()
    defects: list[Defect] = []
    for item in value[:_MOST_DEFECTS]:
        code = item.get("code") if isinstance(item, dict) else item
        quote = item.get("quote", "") if isinstance(item, dict) else ""
        if not isinstance(code, str):
            dropped.append(f"the rubric has no defect {shorten(code)}")
        elif not isinstance(quote, str):
            dropped.append(f"{shorten(code)}, since its quote is no text")
        elif fault := _find_defect_fault(code, quote, reply, rubric):
            dropped.append(fault)
        else:
            defects.append(Defect(code=code, quote=replace_surrogates(quote.strip())))
    return tuple(dict.fromkeys(defects))


def _find_defect_fault(code: str, quote: str, reply: QuotedText, rubric: Rubric) -> str:
    rule = next((rule for rule in rubric.defects if rule.code == code), None)
    if rule is None:
        return f"the rubric has no defect {shorten(code)}"
    if quote.strip():
        return "" if reply.contains(quote) else f"{code}, since the reply does not say {shorten(quote)}"
    return "" if rule.omission else f"{code}, since it has no quote"


def drop_unproven_defects(verdict: Verdict, text: str, rubric: Rubric) -> Verdict:
    """The verdict without defects that the rubric does not know, or that need a quote of `text` and have none. Judges
    of plug-ins may not check their own answers."""
    if not verdict.defects:
        return verdict
    reply = QuotedText(replace_surrogates(text))
    proven = [each for each in verdict.defects if not _find_defect_fault(each.code, each.quote, reply, rubric)]
    return verdict.model_copy(update={"defects": tuple(proven)})


# Answers that list, by criterion.

_LISTS: Final = ("claims", "defects")
_MOST_NAMED: Final = 2


def _expand_lists(
    answer: Mapping[str, object], letters: Sequence[str], rubric: Rubric, problems: list[str]
) -> dict[str, object]:
    """The same answer with an entry for each candidate. What belongs to no candidate becomes a problem."""
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
    turned: dict[str, dict[str, object]] = {}
    for letter, each in scores.items():
        for criterion, score in each.items() if isinstance(each, dict) else ():
            turned.setdefault(criterion, {})[letter] = score
    return turned


def _spread_scores(scores: Mapping[str, object], entries: Mapping[str, dict[str, object]], problems: list[str]) -> None:
    """Null in place of the letters is null for every candidate."""
    for criterion, by_letter in scores.items():
        if by_letter is None:
            by_letter = dict.fromkeys(entries)
        if not isinstance(by_letter, dict):
            problems.append(f"{shorten(criterion)} must be an object with a number for each letter, or null")
            continue
        problems += [f"there is no candidate {shorten(letter)}" for letter in by_letter if letter not in entries][
            :_MOST_NAMED
        ]
        for letter in entries.keys() & by_letter.keys():
            own = entries[letter]["scores"]
            if isinstance(own, dict):
                own[criterion] = by_letter[letter]


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


# Expected scores: the mean over the numbers that the judge might have given, weighted by token probability.

ALTERNATIVES_ASKED: Final = 8
"""`top_logprobs` to request: five scores and some other tokens."""
_LEAST_KNOWN_PROBABILITY: Final = 0.5
"""Least total probability of the alternatives that are scores."""

_SCORES: Final = re.compile(rb'"scores"[ \t\r\n]*:[ \t\r\n]*\{([^{}"]*(?:"[^"\\{}]*"[^{}"]*)*)\}')
_BY_CRITERION: Final = re.compile(
    rb'"scores"[ \t\r\n]*:[ \t\r\n]*\{((?:[ \t\r\n,]*"[^"\\{}]*"[ \t\r\n]*:[ \t\r\n]*(?:null|\{[^{}]*\}))+)'
)
"""Scores of the short form: an object of candidates for each criterion."""
_OF_CRITERION: Final = re.compile(rb"\{([^{}]*)\}")
_SCORE: Final = re.compile(rb'"[^"\\{}]*"[ \t\r\n]*:[ \t\r\n]*([0-9])(?=[ \t\r\n]*(?:,|$))')
_LEAST_LOG: Final = -1000.0
_SURROUNDING_BYTES: Final = b' \t\r\n:,}"'


@dataclass(frozen=True)
class Token:
    """A token of an answer, and its alternatives with their probabilities, itself included."""

    piece: bytes
    alternatives: tuple[tuple[bytes, float], ...]


def insert_expected_scores(text: str, tokens: Sequence[Token]) -> str:
    """`text` with each whole number in a `scores` object replaced by its expected value (G-Eval, arXiv 2303.16634,
    section 2). `text` itself where `tokens` are not those of `text`; a number stays where the tokens do not tell."""
    data = text.encode("utf-8", "surrogatepass")
    written = b"".join(token.piece for token in tokens)
    start = written.rfind(data)
    if not tokens or start < 0:
        return text
    ends = list(accumulate(len(token.piece) for token in tokens))
    pieces: list[bytes] = []
    done = 0
    for offset in _find_score_offsets(data):
        token = tokens[bisect_right(ends, start + offset)]
        value = _compute_expected_score(token)
        if value is not None:
            pieces += [data[done:offset], f"{value:.4f}".encode()]
            done = offset + 1
    return b"".join((*pieces, data[done:])).decode("utf-8", "surrogatepass")


def parse_tokens(choice: object) -> tuple[Token, ...]:
    """The tokens of one choice of a chat completion; none where the server sent none, or some that are not whole."""
    listed = get_field(get_field(choice, "logprobs"), "content")
    if not isinstance(listed, list):
        return ()
    tokens: list[Token] = []
    for item in listed:
        own = _parse_token_probability(item)
        if own is None:
            return ()
        others = get_field(item, "top_logprobs")
        weighed = [_parse_token_probability(other) for other in others] if isinstance(others, list) else []
        # the token itself need not be among the likeliest when it was drawn by lot
        alternatives = dict([own, *(other for other in weighed if other is not None)])
        tokens.append(Token(own[0], tuple(alternatives.items())))
    return tuple(tokens)


def _find_score_offsets(data: bytes) -> Iterator[int]:
    """Where the digits of whole-number scores stand."""
    for scores in _SCORES.finditer(data):
        for score in _SCORE.finditer(scores.group(1)):
            yield scores.start(1) + score.start(1)
    for scores in _BY_CRITERION.finditer(data):
        for criterion in _OF_CRITERION.finditer(scores.group(1)):
            for score in _SCORE.finditer(criterion.group(1)):
                yield scores.start(1) + criterion.start(1) + score.start(1)


def _compute_expected_score(token: Token) -> float | None:
    """None where the token is no single score, or most of what might have stood there is none."""
    if _parse_score(token.piece) is None:
        return None
    scores = [(score, chance) for piece, chance in token.alternatives if (score := _parse_score(piece)) is not None]
    total = math.fsum(chance for _, chance in scores)
    return None if total < _LEAST_KNOWN_PROBABILITY else math.fsum(score * chance for score, chance in scores) / total


def _parse_score(piece: bytes) -> int | None:
    digit = piece.strip(_SURROUNDING_BYTES)
    return int(digit) if len(digit) == 1 and digit.isdigit() and int(digit) <= _HIGHEST else None


def _parse_token_probability(item: object) -> tuple[bytes, float] | None:
    """A token and its probability. `bytes` are meant where both are given: some tokens are no whole characters."""
    text, raw, log = get_field(item, "token"), get_field(item, "bytes"), get_field(item, "logprob")
    if isinstance(log, bool) or not isinstance(log, int | float) or not log <= 0.0:
        return None
    chance = math.exp(max(log, _LEAST_LOG))
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        return bytes(raw), chance
    return (text.encode("utf-8", "surrogatepass"), chance) if isinstance(text, str) else None


# Refusals, as opposed to malformed answers.

_LONGEST_REFUSAL: Final = 1500
"""In characters. Longer text is a malformed answer."""
_REFUSAL_OPENING: Final = re.compile(
    r" (?:(?:(?:i m|i am|we re|we are) (?:very |so |truly )?sorry|sorry|(?:i|we) apologi[sz]e|my apologies"
    r"|unfortunately) )?(?:but |however )?(?:as an ai (?:language model |assistant |model )?)?(?:but )?(?:i|we)"
    r" (?:must decline|have to decline|must refuse|refuse to|decline to"
    r"|(?:can t|cannot|can not|won t|will not|m unable to|am unable to|re unable to|m not able to|am not able to"
    r"|m not comfortable|am not comfortable)"
    r" (?:be able to )?(?:assist|help|comply|judge|judging|evaluate|evaluating|rate|rating|score|scoring|grade|grading"
    r"|rank|ranking|compare|assess|do|provide|fulfil|fulfill|continue|engage|engaging|participate|answer|respond|discuss"
    r"|review|process|complete|proceed|take part|support|with)) "
)


def is_refusal(answer: str) -> bool:
    """Whether an answer is clearly a refusal: short, without JSON, and opening with a refusal in English or using a
    service's phrase in one of ten languages. Anything less clear gets the corrective retry."""
    reply = Reply(answer)
    if not reply.visible or len(reply.visible) > _LONGEST_REFUSAL or "{" in reply.visible:
        return False
    return (
        _REFUSAL_OPENING.match(reply.padded_words) is not None
        or refuses(reply, NO_CHARACTER)
        or may_refuse(reply, NO_CHARACTER)
    )
