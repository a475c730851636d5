"""Claims about events, checked against the events that the character knows.

A judge may list what a reply tells of events. Every claim is checked against the reply and the event that it names; one
that no event supports is a defect.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from app.domain.judging import Claim, Defect, JudgeRequest, Rubric, Verdict
from app.domain.scores import Criterion
from app.judges.gate_wordings import fold_text, replace_surrogates

_LONGEST_CACHED: Final = 10_000
"""Longest text, in characters, whose normalised form is cached."""
_LEAST_WEIGHT: Final = 3
"""Least letters or digits of a quote. Wide characters, such as Chinese, count twice."""


def _normalise_quote(text: str) -> str:
    """Normalises white space, quotation marks and case."""
    return _cached_quote(text) if len(text) <= _LONGEST_CACHED else _build_quote(text)


def _build_quote(text: str) -> str:
    return " ".join(fold_text(text).split())


_cached_quote: Final = lru_cache(maxsize=1024)(_build_quote)
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
_LONGEST_NOTE: Final = 600
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
