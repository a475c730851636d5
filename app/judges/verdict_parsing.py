"""Parses a judge's answer: tolerant of text around the JSON, strict about its content."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.judging import Claim, Defect, JudgeRequest, Rubric, Verdict
from app.judges.claims import (
    QuotedText,
    build_unsupported_defects,
    find_misused_null,
    list_sources,
    parse_claims,
    shorten,
)
from app.judges.configuration import VerdictForm
from app.judges.formats import decode_whole, expand_short_answer, is_short, iterate_objects, list_duplicates
from app.judges.presentation_order import assign_letters
from app.judges.text_normalisation import THOUGHT_TAGS, replace_surrogates

HIGHEST: Final = 4.0
PARSER_VERSION: Final = 9
"""Increase this when the same answer would be parsed differently."""

_LONGEST_ANSWER: Final = 400_000  # characters that are parsed, from the end
_MISSING_FIELDS: Final[Mapping[VerdictForm, str]] = {
    "long": '"verdicts" is missing or not a list',
    "short": '"scores" is missing or not an object',
}
_MISSING: Final = object()
_NUMBER: Final = re.compile(r"[0-9](?:\.[0-9]{1,6})?")
_MOST_ANSWERS: Final = 50
_MOST_PROBLEMS: Final = 6
_MOST_QUOTES: Final = 10
_MOST_DEFECTS: Final = 30
_LONGEST_NOTE: Final = 600


@dataclass(frozen=True)
class JudgeAnswer:
    """A valid answer. Dropped parts are listed in the verdicts' notes."""

    verdicts: tuple[Verdict, ...]
    ranking: tuple[tuple[str, ...], ...]
    is_whole: bool = field(default=False, compare=False)
    """There was nothing else in the text."""


@dataclass(frozen=True)
class UnusableAnswer:
    """Why an answer is invalid, in words that the judge can act on."""

    problems: tuple[str, ...]


def parse_answer(text: str, request: JudgeRequest, form: VerdictForm = "short") -> JudgeAnswer | UnusableAnswer:
    """The last JSON object in `text` that is a valid answer to `request`, else the problems of the last attempt. Both
    forms are read; `form` is the one that was asked for. Never raises. Linear time."""
    problem = "there is no complete JSON object in the answer"
    failures: list[UnusableAnswer] = []
    text = text[-_LONGEST_ANSWER:]
    for part in _iterate_search_texts(text):
        whole = decode_whole(part, may_be_answer)
        for found in iterate_objects(part) if whole is None else (whole,):
            if not may_be_answer(found):
                problem = _MISSING_FIELDS[form]
                continue
            answer = _validate_answer(found, request, is_whole=whole is not None and part is text)
            if isinstance(answer, JudgeAnswer):
                return answer
            failures.append(answer)
            if len(failures) == _MOST_ANSWERS:
                return failures[0]
    return failures[0] if failures else UnusableAnswer((problem,))


def may_be_answer(found: Mapping[str, object]) -> bool:
    return "verdicts" in found or is_short(found)


def _iterate_search_texts(text: str) -> Iterator[str]:
    """The texts to search: after the judge's thought, and also everywhere when its closing tag may be part of a
    quote."""
    for tag in THOUGHT_TAGS:
        _, closing, behind = text.partition(f"</{tag}>")
        if text.lstrip().startswith(f"<{tag}>"):
            yield behind
            return
        if closing:
            yield behind
    yield text


def _validate_answer(
    found: Mapping[str, object], request: JudgeRequest, *, is_whole: bool
) -> JudgeAnswer | UnusableAnswer:
    ids = {letter: candidate.id for letter, candidate in zip(assign_letters(request), request.candidates, strict=True)}
    texts = {letter: candidate.own or candidate.text for letter, candidate in zip(ids, request.candidates, strict=True)}
    problems = _find_duplicates(found, "the answer")
    if is_short(found):
        problems += _find_duplicates_within(found)
        found = expand_short_answer(found, tuple(ids), request.rubric, problems)
    entries = _parse_entries(found, tuple(texts), problems)
    ranking = _parse_ranking(found.get("ranking"), tuple(texts), problems)
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
    found: Mapping[str, object], ids: Sequence[str], problems: list[str]
) -> dict[str, Mapping[str, object]]:
    listed = found.get("verdicts")
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
    said = QuotedText(text)
    dropped: list[str] = []
    evidence = _parse_evidence(entry.get("evidence"), said, dropped)
    listed = entry.get("claims")
    claims: tuple[Claim, ...] = ()
    if rubric.claims is not None and listed is not None:  # who lists none reports none
        claims = parse_claims(name, listed, said, sources, problems)
    defects = _parse_defects(entry.get("defects"), said, rubric, dropped)
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
        given = value.get(criterion, _MISSING)
        if (type(given) is int or type(given) is float) and 0 <= given <= HIGHEST:  # no bool
            scores[criterion] = given / HIGHEST
            continue
        score = _parse_number(given)
        if given is _MISSING:
            problems.append(f"candidate {name} has no score for {criterion}")
        elif score is None and given is not None:
            problems.append(f"candidate {name}: {criterion} must be a number from 0 to 4, or null")
        else:
            scores[criterion] = None if score is None else score / HIGHEST
    if len(scores) < len(criteria):
        problems += [f"candidate {name}: {each}" for each in unknown]
    elif all([score is None for score in scores.values()]):
        problems.append(f"candidate {name} has no score but null")
    return scores


def _parse_number(value: object) -> float | None:
    """A score from 0 to 4, also one in quotation marks. None for everything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= HIGHEST:
        return None
    return float(value)


def _find_uneven_criteria(verdicts: Mapping[str, Verdict], rubric: Rubric) -> Iterator[str]:
    """A criterion applies to all candidates or to none: null for a single one would only shift its weights."""
    if not any(None in each.scores.values() for each in verdicts.values()):
        return
    for name in (criterion.name for criterion in rubric.criteria):
        given = {letter: each.scores[name] for letter, each in verdicts.items() if name in each.scores}
        without = [letter for letter, score in given.items() if score is None]
        if 0 < len(without) < len(given):
            yield (
                f"{name} is null for {', '.join(without)} and a number for others: null is for a criterion "
                "that applies to none of the candidates"
            )


def _find_duplicates_within(answer: Mapping[str, object]) -> list[str]:
    """In the objects of the short form."""
    scores, notes = answer.get("scores"), answer.get("notes")
    parts = {f'"{name}"': part for name, part in (("scores", scores), ("notes", notes)) if isinstance(part, dict)}
    if isinstance(scores, dict):
        parts |= {shorten(name): part for name, part in scores.items() if isinstance(part, dict)}
    return [problem for where, part in parts.items() for problem in _find_duplicates(part, where)]


def _find_duplicates(found: Mapping[str, object], *where: str) -> list[str]:
    names = list_duplicates(found)
    return [f"{' '.join(where)} has {shorten(name)} more than once" for name in names] if names else names


def _parse_evidence(value: object, said: QuotedText, dropped: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    found: list[str] = []
    for quote in value[:_MOST_QUOTES]:
        if isinstance(quote, str):
            if said.contains(quote):
                found.append(replace_surrogates(quote))
            else:
                dropped.append(f"the reply does not say {shorten(quote)}")
    return tuple(found)


def _parse_defects(value: object, said: QuotedText, rubric: Rubric, dropped: list[str]) -> tuple[Defect, ...]:
    """Defects without a verbatim quote are dropped, but for omissions."""
    if not isinstance(value, list) or not value:
        return ()
    kept: list[Defect] = []
    for item in value[:_MOST_DEFECTS]:
        code = item.get("code") if isinstance(item, dict) else item
        quote = item.get("quote", "") if isinstance(item, dict) else ""
        if not isinstance(code, str):
            dropped.append(f"the rubric has no defect {shorten(code)}")
        elif not isinstance(quote, str):
            dropped.append(f"{shorten(code)}, since its quote is no text")
        elif fault := _find_defect_fault(code, quote, said, rubric):
            dropped.append(fault)
        else:
            kept.append(Defect(code=code, quote=replace_surrogates(quote.strip())))
    return tuple(dict.fromkeys(kept))


def _find_defect_fault(code: str, quote: str, said: QuotedText, rubric: Rubric) -> str:
    rule = next((rule for rule in rubric.defects if rule.code == code), None)
    if rule is None:
        return f"the rubric has no defect {shorten(code)}"
    if quote.strip():
        return "" if said.contains(quote) else f"{code}, since the reply does not say {shorten(quote)}"
    return "" if rule.omission else f"{code}, since it has no quote"


def drop_unproven_defects(verdict: Verdict, text: str, rubric: Rubric) -> Verdict:
    """The verdict without defects that the rubric does not know, or that need a quote of `text` and have none. Judges
    of plug-ins may not check their own answers."""
    if not verdict.defects:
        return verdict
    said = QuotedText(replace_surrogates(text))
    kept = [each for each in verdict.defects if not _find_defect_fault(each.code, each.quote, said, rubric)]
    return verdict.model_copy(update={"defects": tuple(kept)})
