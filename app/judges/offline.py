"""The offline judge, used when none is configured: deterministic and without a model, for trying the system.

It judges by words. A reply gains by the voice and facts of its sheet and scene, by taking up the line that it answers,
and by sentences that say something about this world; it loses by phrases of assistants, repetition and forbidden
mentions. Padding with empty words never raises a measure. Words tell neither sense nor truth, so no policy should be
trained on it. It knows five languages and fails for any other, rather than guess.

Claims about events stand here too. Every judge may report them, and every report is checked against the reply and the
events in the same way.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import Field, JsonValue, TypeAdapter

from app.domain.judging import (
    Candidate,
    Claim,
    Defect,
    Judgement,
    JudgeRequest,
    Probes,
    Rubric,
    SourceEvent,
    Verdict,
    apply_bounds,
    compute_absolute_score,
    find_cap,
)
from app.domain.scores import Criterion
from app.domain.values import Frozen, digest
from app.judges.gate_checks import contains_term
from app.judges.gate_wordings import (
    Reply,
    contains_words,
    fold_text,
    iterate_ngrams,
    replace_surrogates,
    split_words,
    strip_region,
    to_spoken_form,
)
from app.judges.gates import list_given_hints
from app.toolkit.texts import run_in_turn

# Languages: their word lists, and which one a text is in.

LANGUAGES: Final = ("en", "de", "es", "fr", "it")
"""ISO 639-1 codes of the supported languages."""

_FOLDER: Final = Path(__file__).with_name("languages")
_LONGEST_STEMMED: Final = 40
_TEXTS_KEPT: Final = 4_096
"""Of sheets, scenes and events, whose stems are kept: 30 MB at most."""
_LONGEST_KEPT: Final = 500
"""Characters of such a text."""
_LONGEST_READ: Final = 20_000
"""Characters of a text that language detection reads."""
_LEAST_SHARE: Final = 0.2
"""Least share of stop words of the detected language."""
_FEW_WORDS: Final = 4
"""In texts up to this many words one stop word is enough, if no other language has it."""
_LEAST_LEAD: Final = 1.25
"""Required ratio of stop words to those of any other language."""
_LATIN: Final = re.compile("[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_SHARE: Final = 0.9


class _LanguageFile(Frozen):
    """A language's file: words separated by white space, one phrase per line, endings with replacements."""

    name: str
    stop_words: str
    common_words: str
    you: str
    negations: str
    lately: str
    assistant: str
    endings: tuple[tuple[str, str], ...]
    shortest_stem: Annotated[int, Field(ge=1)]


_STOP_WORDS_ADAPTER: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    stop_words: frozenset[str]
    common_words: frozenset[str]
    """Everyday words that say little about the subject."""
    you: frozenset[str]
    negations: frozenset[str]
    lately: tuple[str, ...]
    """Phrases for the recent past, as words separated by single spaces."""
    assistant: tuple[str, ...]
    """Typical phrases of assistants, in the same form."""
    endings: tuple[tuple[str, str], ...]
    shortest_stem: int

    @cached_property
    def _silent(self) -> frozenset[str]:
        words = self.stop_words | self.common_words
        return words | frozenset(self.stem(word) for word in words)

    def stem(self, word: str) -> str:
        """A rough stem without the ending: enough to match "coppers" and "copper"."""
        return _strip_ending(self.endings, self.shortest_stem, word) if len(word) <= _LONGEST_STEMMED else word

    def extract_stems(self, text: str) -> Iterator[str]:
        """Stems of the content words."""
        for word in split_words(fold_text(text)):
            if len(word) > 1 and word not in self._silent:
                stem = self.stem(word)
                if stem not in self._silent:
                    yield stem

    def collect_stems(self, text: str) -> frozenset[str]:
        """The stems of a text that replies are compared with. Those of short texts are kept for the next reply."""
        if len(text) > _LONGEST_KEPT:
            return frozenset(self.extract_stems(text))
        return _collect_stems(self.code, text)


@lru_cache(maxsize=_TEXTS_KEPT)
def _collect_stems(code: str, text: str) -> frozenset[str]:
    language = get_language(code)
    return frozenset() if language is None else frozenset(language.extract_stems(text))


@cache
def get_language(code: str) -> Language | None:
    """None for an unsupported language. Regions as in `de-AT` are ignored."""
    short = strip_region(code)
    if short not in LANGUAGES:
        return None
    lists = _LanguageFile.model_validate(yaml.safe_load((_FOLDER / f"{short}.yaml").read_text(encoding="utf-8")))
    return Language(
        code=short,
        name=lists.name,
        stop_words=_parse_words(lists.stop_words),
        common_words=_parse_words(lists.common_words),
        you=_parse_words(lists.you),
        negations=_parse_words(lists.negations),
        lately=_parse_phrases(lists.lately),
        assistant=_parse_phrases(lists.assistant),
        endings=tuple((fold_text(ending), instead) for ending, instead in lists.endings),
        shortest_stem=lists.shortest_stem,
    )


def _list_languages() -> list[Language]:
    return [language for code in LANGUAGES if (language := get_language(code)) is not None]


@cache
def _list_assistant_phrases_of_all_languages() -> tuple[str, ...]:
    return tuple(dict.fromkeys(phrase for language in _list_languages() for phrase in language.assistant))


def detect_language(text: str) -> Language | None:
    """Detects the language of `text` by its stop words, including those of unsupported languages; None when it is
    unsupported or unclear."""
    text = text[:_LONGEST_READ]
    letters = [character for character in text if character.isalpha()]
    if sum(_LATIN.match(letter) is not None for letter in letters) < _LATIN_SHARE * len(letters):
        return None
    words = split_words(fold_text(text))
    counts = sorted(
        ((sum(word in marks for word in words), code) for code, marks in _collect_stop_words().items()), reverse=True
    )
    (best, code), (second, _) = counts[:2]
    enough = 1 if len(words) <= _FEW_WORDS else 2
    if best < enough or best < _LEAST_SHARE * len(words) or best < _LEAST_LEAD * second:
        return None
    return get_language(code)


@cache
def _collect_stop_words() -> Mapping[str, frozenset[str]]:
    """Stop words by language, including unsupported languages."""
    others = _STOP_WORDS_ADAPTER.validate_python(yaml.safe_load((_FOLDER / "others.yaml").read_text(encoding="utf-8")))
    return {
        **{language.code: language.stop_words for language in _list_languages()},
        **{code: _parse_words(text) for code, text in others.items()},
    }


def _parse_phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(split_words(fold_text(line))) for line in text.splitlines())


def _parse_words(text: str) -> frozenset[str]:
    return frozenset(split_words(fold_text(text)))


@lru_cache(maxsize=100_000)
def _strip_ending(endings: tuple[tuple[str, str], ...], shortest: int, word: str) -> str:
    for ending, instead in endings:
        if len(word) - len(ending) >= shortest and word.endswith(ending):
            return word[: -len(ending)] + instead
    return word


# Measures of one reply, by words, against what the judge is shown.

_LIST_ITEM: Final = re.compile(r"^ {0,4}(?:[-*•] |\d{1,2}[.)] |#{1,4} )", re.MULTILINE)
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+[.!?。！？\"'”’)*]*")
_SENTENCES_READ: Final = 200
_FULL_FOCUS: Final = 0.35
"""Share of words from the character's world that gives full focus."""
_CHANCE_OVERLAP: Final = 0.7
"""Words in common by chance."""
_ECHO_RUN_WORDS: Final = 8
"""So many words of the line in a row are an echo, and no answer."""
_MARKERS_AT_MOST: Final = 6
"""More are a list, and no voice."""
_REPEATED_WORDS: Final = 4
"""From this number of equal words in a row a reply repeats itself."""
_REPETITIONS: Final = 6
"""This many are as bad as it gets."""
_LONGEST_QUOTE: Final = 200
_SHORT_SENTENCE: Final = 4
"""From this number of words a sentence is expected to say something."""


@dataclass(frozen=True)
class Measures:
    """Each in [0, 1]. `idle` and all fields after it are faults."""

    voice: float
    facts: float
    focus: float
    """How much of the reply is about the world of sheet, scene and probes."""
    answers: float
    """How much the reply takes up the answered line."""
    hook: float
    idle: float
    """Share of sentences that say nothing of their own about this world."""
    assistant: float
    repetition: float
    banned: tuple[str, ...]
    """Forbidden probes that are mentioned."""


@dataclass(frozen=True)
class FaultQuotes:
    """Per fault the sentence that shows it, verbatim; empty without the fault."""

    banned: str = ""
    assistant: str = ""
    repetition: str = ""


@dataclass(frozen=True)
class Lexicon:
    """The judge's context as words, built once for all candidates."""

    language: Language
    probes: Probes
    line: str
    line_stems: frozenset[str]
    world: frozenset[str]

    @classmethod
    def from_request(cls, request: JudgeRequest, language: Language) -> "Lexicon":
        probes, line = request.probes, to_spoken_form(get_answered_line(request.document))
        texts = (*iterate_texts(request.document), *probes.must_mention, *probes.voice, *probes.facts)
        return cls(
            language=language,
            probes=probes,
            line=line,
            line_stems=language.collect_stems(line),
            world=frozenset[str]().union(*map(language.collect_stems, texts)),
        )

    def measure(self, text: str) -> Measures:
        reply = Reply(text)
        if not reply.words:
            return Measures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ())
        present = frozenset(self.language.extract_stems(reply.padded_words))
        sentences = self._analyse_sentences(reply)
        return Measures(
            voice=self._measure_voice(reply),
            facts=self._measure_facts(reply, present),
            focus=self._measure_focus(reply, present),
            answers=self._measure_uptake(reply, present),
            hook=sentences.hook,
            idle=sentences.idle_share,
            assistant=_measure_assistant_tone(reply),
            repetition=_measure_repetition(reply),
            banned=tuple(
                term
                for term in self.probes.must_not_mention
                if reply.mentions(term) and not contains_words(self.line, term)
            ),
        )

    def select_quotes(self, text: str, count: int = 2) -> tuple[str, ...]:
        """The sentences with most world words, verbatim and in order."""
        sentences = [sentence[:_LONGEST_QUOTE] for sentence in split_sentences(text)]
        weighed = sorted(((-self._count_world_stems(sentence), index) for index, sentence in enumerate(sentences)))
        return tuple(sentences[index] for index in sorted(index for weight, index in weighed[:count] if weight < 0))

    def _measure_voice(self, reply: Reply) -> float:
        markers = [marker for marker in self.probes.voice if reply.mentions(marker)]
        value = (0.0, 0.6, 0.9)[len(markers)] if len(markers) < 3 else 1.0
        return value / 2 if len(markers) > _MARKERS_AT_MOST else value

    def _measure_facts(self, reply: Reply, present: frozenset[str]) -> float:
        required = self.probes.must_mention
        if required:
            mentioned = sum(reply.mentions(term) for term in required)
            return 0.0 if mentioned == 0 else 0.6 + 0.4 * mentioned / len(required)
        shares = []
        for fact in self.probes.facts:
            content = self.language.collect_stems(fact)
            shares.append(len(content & present) / len(content) if content else 0.0)
        return min(1.0, 2.0 * max(shares, default=0.0))

    def _measure_focus(self, reply: Reply, present: frozenset[str]) -> float:
        shared = len(self.world & present)
        return min(1.0, max(0.0, shared - _CHANCE_OVERLAP) / (len(reply.words) + 2) / _FULL_FOCUS)

    def _measure_uptake(self, reply: Reply, present: frozenset[str]) -> float:
        words = tuple(self.line.split())
        run = min(_ECHO_RUN_WORDS, len(words))
        echoed = set(iterate_ngrams(words, run)) if run >= 4 else set()
        if echoed and any(gram in echoed for gram in iterate_ngrams(reply.words, run)):
            return 0.1
        if not self.line_stems:
            return self._measure_focus(reply, present)
        return min(1.0, len(self.line_stems & present) / min(2, len(self.line_stems)))

    def _analyse_sentences(self, reply: Reply) -> "_SentenceCounts":
        """Of a long reply few objects are kept at a time: a search for garbage stops the service while it lasts."""
        sentences = [match.group() for match in _SENTENCE.finditer(reply.folded)]
        subjects = [tuple(self.world.intersection(self.language.extract_stems(sentence))) for sentence in sentences]
        counts = Counter(stem for stems in subjects for stem in stems)
        telling, idle, asks, to_you = 0, 0, False, False
        for sentence, stems in zip(sentences, subjects, strict=True):
            if any(counts[stem] == 1 for stem in stems):
                telling += 1
                asks = asks or "?" in sentence or "？" in sentence
                to_you = to_you or not self.language.you.isdisjoint(split_words(sentence))
            elif len(split_words(sentence)) >= _SHORT_SENTENCE:
                idle += 1
        return _SentenceCounts(telling, idle, asks, to_you)

    def _count_world_stems(self, sentence: str) -> int:
        return len(self.world.intersection(self.language.extract_stems(sentence)))


@dataclass(frozen=True)
class _SentenceCounts:
    telling: int
    """Sentences with a word of this world that no other sentence of the reply has."""
    idle: int
    """Others that are not short."""
    asks: bool
    """A telling sentence is a question."""
    to_you: bool
    """A telling sentence addresses the player."""

    @property
    def hook(self) -> float:
        """A question or an address to the player about this world."""
        return 1.0 if self.asks else 0.7 if self.to_you else 0.0

    @property
    def idle_share(self) -> float:
        """Words added to a sentence never lower it."""
        return self.idle / (self.telling + self.idle) if self.idle else 0.0


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences verbatim; only the first ones of very long texts."""
    sentences = (match.group().strip() for match in islice(_SENTENCE.finditer(text), _SENTENCES_READ))
    return tuple(sentence for sentence in sentences if sentence)


def quote_faults(text: str, measures: Measures) -> FaultQuotes:
    """Quotes for the faults in `measures`. A fault that no single sentence shows is quoted from the start."""
    if not (measures.banned or measures.assistant or measures.repetition):
        return FaultQuotes()
    sentences = [Reply(sentence) for sentence in (*split_sentences(text), text)]
    repeated = frozenset(_iterate_repeated(sentences[-1].words) if measures.repetition else ())

    def quote(shows: Callable[[Reply], bool]) -> str:
        return next((each.raw for each in sentences if shows(each)), text).strip()[:_LONGEST_QUOTE]

    return FaultQuotes(
        quote(lambda each: any(each.mentions(term) for term in measures.banned)) if measures.banned else "",
        quote(lambda each: _measure_assistant_tone(each) > 0) if measures.assistant else "",
        quote(lambda each: any(gram in repeated for gram in iterate_ngrams(each.words, _REPEATED_WORDS)))
        if measures.repetition
        else "",
    )


def get_answered_line(document: Mapping[str, JsonValue]) -> str:
    """The answered line: the last of `conversation` or `messages`, or the text of `prompt` or `question`."""
    for key in ("conversation", "messages", "prompt", "question"):
        value = document.get(key)
        if isinstance(value, str):
            return value
        last = value[-1] if isinstance(value, list) and value else None
        if isinstance(last, dict):
            text = last.get("text", last.get("content"))
            if isinstance(text, str):
                return text
    return ""


def _join_conversation(document: Mapping[str, JsonValue]) -> str:
    """All lines of the conversation, without system prompts."""
    listed = document.get("conversation", document.get("messages"))
    lines = [line for line in listed if isinstance(line, dict)] if isinstance(listed, list) else []
    spoken = [line.get("text", line.get("content")) for line in lines if line.get("role") != "system"]
    return "\n".join(text for text in spoken if isinstance(text, str))


def iterate_texts(value: JsonValue) -> Iterator[str]:
    """Every string in a document, except those withheld from the speaker."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from iterate_texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not key.startswith("withheld"):
                yield from iterate_texts(item)


def _measure_assistant_tone(reply: Reply) -> float:
    phrases = sum(f" {phrase} " in reply.padded_words for phrase in _list_assistant_phrases_of_all_languages())
    items = len(_LIST_ITEM.findall(reply.visible))
    return min(1.0, (phrases + (1 if items >= 2 else 0)) / 2)


def _measure_repetition(reply: Reply) -> float:
    return min(1.0, sum(1 for _ in islice(_iterate_repeated(reply.words), _REPETITIONS)) / _REPETITIONS)


def _iterate_repeated(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each run of words that stands further in front too. Python code on purpose: a `Counter` of a large reply lets no
    other thread in."""
    seen: set[tuple[str, ...]] = set()
    for run in iterate_ngrams(words, _REPEATED_WORDS):
        if run in seen:
            yield run
        seen.add(run)


# Mentions of events in a reply: words shared with events, and phrases for the recent past.

_LONGEST_SENTENCE: Final = 300
"""Most quoted characters of a sentence."""


@dataclass(frozen=True)
class _EventMentions:
    claims: tuple[Claim, ...]
    """Sentences with words of an event; without a source, sentences about the recent past with few words of this
    world."""
    takes_up: bool
    gives_away: str
    """A sentence that states a withheld term; empty if there is none."""


@dataclass(frozen=True)
class _EventWords:
    """Words of the events, built once for all candidates."""

    language: Language
    events: tuple[tuple[SourceEvent, frozenset[str]], ...]
    """Each event with the words that only it adds to the scene."""
    world: frozenset[str]
    withheld: tuple[str, ...]
    line: str
    called: bool
    """Whether the line, or a required mention, has words of an event. An event that is the line itself does not count:
    the measure of answers covers it."""

    @classmethod
    def from_request(cls, request: JudgeRequest, language: Language, world: frozenset[str]) -> "_EventWords":
        document = request.document
        line = language.collect_stems(get_answered_line(document))
        settled = frozenset[str]().union(
            *(
                language.collect_stems(text)
                for key in ("character_sheet", "scene")
                for text in iterate_texts(document.get(key))
            )
        )
        events = [(source, language.collect_stems(source.text)) for source in request.sources]
        before = [(source, stems) for source, stems in events if source.text != get_answered_line(document)]
        required = request.probes.must_mention
        return cls(
            language=language,
            # Words of the line count only for an event that has no others: any reply may repeat the line.
            events=tuple((source, (stems - settled - line) or (stems - settled)) for source, stems in events),
            world=world,
            withheld=tuple(_iterate_leak_terms(document)),
            line=get_answered_line(document),
            called=any(
                len(stems & line) > 0 or any(contains_words(to_spoken_form(source.text), term) for term in required)
                for source, stems in before
            ),
        )

    def find_mentions(self, text: str, *, hinted: bool) -> _EventMentions:
        """`hinted`: a word check found a withheld term that was not said before."""
        claims: list[Claim] = []
        gives_away = ""
        for sentence in split_sentences(text):
            if "?" in sentence or "？" in sentence:
                continue  # a question states nothing
            spoken = to_spoken_form(sentence)
            claims += self._extract_claim(sentence, spoken)
            stated = hinted and not self._denies(spoken) and any(contains_term(spoken, term) for term in self.withheld)
            gives_away = gives_away or (sentence[:_LONGEST_SENTENCE] if stated else "")
        stems = frozenset(self.language.extract_stems(text))
        return _EventMentions(
            claims=tuple(claims),
            takes_up=any(not own.isdisjoint(stems) for source, own in self.events if source.text != self.line),
            gives_away=gives_away,
        )

    def _extract_claim(self, sentence: str, spoken: str) -> Iterator[Claim]:
        stems = frozenset(self.language.extract_stems(spoken))
        shared, source = max(
            ((len(own & stems), source) for source, own in self.events), key=lambda pair: pair[0], default=(0, None)
        )
        if source is not None and shared:
            yield Claim(
                quote=sentence[:_LONGEST_SENTENCE], source=source.id, source_quote=source.text[:_LONGEST_SENTENCE]
            )
        elif self._is_recent(spoken) and not self._denies(spoken) and 2 * len(stems & self.world) < len(stems):
            yield Claim(quote=sentence[:_LONGEST_SENTENCE], source=None)

    def _is_recent(self, spoken: str) -> bool:
        return any(f" {phrase} " in spoken for phrase in self.language.lately)

    def _denies(self, spoken: str) -> bool:
        return not self.language.negations.isdisjoint(spoken.split())


def _iterate_leak_terms(document: Mapping[str, JsonValue]) -> Iterable[str]:
    listed = document.get("withheld_events")
    for item in listed if isinstance(listed, list) else []:
        terms = item.get("leak_terms") if isinstance(item, dict) else None
        yield from (term for term in (terms if isinstance(terms, list) else []) if isinstance(term, str))


# Claims about events, checked against the events that the character knows.

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


# The judge.

NAME: Final = "offline"
MODEL: Final = "offline-lexical-3"

_BANNED_CODES: Final = ("future_knowledge", "secret_leak", "lore_contradiction")
"""A forbidden mention is reported as the first of these codes that the rubric has."""
_MOST_JUDGED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that is judged on the event loop."""
_TIE_DECIMALS: Final = 3
"""Decimal places to which two values must be equal for a tie."""


class OfflineJudge:
    """Judges by words, not meaning. Prefers replies that use the voice and facts of sheet and scene and answer the
    line; penalises assistant phrases and empty sentences. Fails for languages it does not support. Not for training."""

    name = NAME
    model = MODEL
    digest = digest([MODEL])
    languages = LANGUAGES

    async def judge(self, request: JudgeRequest) -> Judgement:
        if sum(len(candidate.text) for candidate in request.candidates) > _MOST_JUDGED_ON_LOOP:
            return await run_in_turn("judges", self._judge_blocking, request)
        return self._judge_blocking(request)

    def _judge_blocking(self, request: JudgeRequest) -> Judgement:
        order = tuple(candidate.id for candidate in request.candidates)
        language = _choose_language(request)
        if language is None:
            words = f"knows {', '.join(LANGUAGES)} and no other language: {_describe_language(request)}"
            return Judgement(judge=self.name, model=self.model, order=order, error=words, failure="language")
        verdicts = _build_verdicts(request, language)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=verdicts,
            ranking=rank_candidates(
                {verdict.candidate: _compute_worth(request.rubric, verdict) for verdict in verdicts}
            ),
        )


def _choose_language(request: JudgeRequest) -> Language | None:
    """The stated language, else detected from the answered line, else from the conversation. Never from the candidates:
    a model could then choose not to be scored."""
    if request.language:
        return get_language(request.language)
    return detect_language(get_answered_line(request.document)) or detect_language(_join_conversation(request.document))


def _describe_language(request: JudgeRequest) -> str:
    """As it is stored in rationales: the words stay."""
    if request.language:
        return f"this is {request.language!r}"
    return "what is answered is in another, or too short to tell"


def _compute_worth(rubric: Rubric, verdict: Verdict) -> float:
    return min(compute_absolute_score(rubric, apply_bounds(rubric, verdict)), find_cap(rubric, verdict.defects))


def rank_candidates(standings: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Best first. Values that are equal after rounding are tied."""
    rounded = sorted((-round(value, _TIE_DECIMALS), candidate) for candidate, value in standings.items())
    return tuple(tuple(candidate for _, candidate in tier) for _, tier in groupby(rounded, key=lambda pair: pair[0]))


def _build_verdicts(request: JudgeRequest, language: Language) -> tuple[Verdict, ...]:
    lexicon = Lexicon.from_request(request, language)
    events = _EventWords.from_request(request, language, lexicon.world)
    readings = [_read_candidate(lexicon, events, candidate) for candidate in request.candidates]
    silent: set[str] = set()
    if not events.called and not any(each.mentions.claims for each in readings):
        silent.add("event_grounding")
    if not events.withheld and not request.probes.must_not_mention:
        silent.add("knowledge_boundary")
    return tuple(_build_verdict(request.rubric, each, events.called, silent) for each in readings)


@dataclass(frozen=True)
class _CandidateReading:
    candidate: str
    measures: Measures
    mentions: _EventMentions
    evidence: tuple[str, ...]
    quotes: FaultQuotes


def _read_candidate(lexicon: Lexicon, events: _EventWords, candidate: Candidate) -> _CandidateReading:
    own = candidate.own or candidate.text
    hinted = any(hint.confirmed for hint in list_given_hints(candidate))
    measures = lexicon.measure(own)
    return _CandidateReading(
        candidate.id,
        measures,
        events.find_mentions(own, hinted=hinted),
        lexicon.select_quotes(own),
        quote_faults(own, measures),
    )


def _build_verdict(rubric: Rubric, reading: _CandidateReading, called: bool, silent: Collection[str]) -> Verdict:
    """`silent`: criteria that apply to none of the candidates."""
    measures, mentions = reading.measures, reading.mentions
    values = {name: measured(measures) for name, measured in _MEASURED_CRITERIA.items()}
    values["knowledge_boundary"] = _score_knowledge_boundary(measures, mentions)
    values["event_grounding"] = _score_event_grounding(measures, mentions, called)
    scores = {
        criterion.name: None
        if criterion.name in silent
        else round(values.get(criterion.name, _score_relevance(measures)), 4)
        for criterion in rubric.criteria
    }
    claims = () if rubric.claims is None else mentions.claims
    return Verdict(
        candidate=reading.candidate,
        evidence=reading.evidence,
        claims=claims,
        defects=(
            *_find_defects(rubric, reading),
            *_find_event_defects(rubric, mentions, called),
            *build_unsupported_defects(rubric, claims),
        ),
        scores=scores,
        note=(
            f"Words only, no model: voice {measures.voice:.2f}, facts {measures.facts:.2f}, "
            f"on the subject {measures.focus:.2f}, takes up the line {measures.answers:.2f}."
        ),
    )


def _find_defects(rubric: Rubric, reading: _CandidateReading) -> tuple[Defect, ...]:
    codes = {rule.code for rule in rubric.defects}
    measures, quotes = reading.measures, reading.quotes
    defects: list[Defect] = []
    banned = next((code for code in _BANNED_CODES if code in codes), None)
    if measures.banned and banned is not None:
        defects.append(Defect(code=banned, quote=quotes.banned))
    if measures.assistant >= 0.5 and "assistant_tone" in codes:
        defects.append(Defect(code="assistant_tone", quote=quotes.assistant))
    if measures.repetition >= 0.5 and "repetition" in codes:
        defects.append(Defect(code="repetition", quote=quotes.repetition))
    return tuple(defects)


def _find_event_defects(rubric: Rubric, mentions: _EventMentions, called: bool) -> tuple[Defect, ...]:
    codes = {rule.code for rule in rubric.defects}
    defects: list[Defect] = []
    if mentions.gives_away and "knows_withheld" in codes:
        defects.append(Defect(code="knows_withheld", quote=mentions.gives_away))
    if called and not mentions.takes_up and "ignores_event" in codes:
        defects.append(Defect(code="ignores_event"))
    return tuple(defects)


def _weigh_parts(*parts: tuple[float, float]) -> float:
    return sum(weight * value for weight, value in parts)


def _score_soundness(measures: Measures) -> float:
    return (1.0 - 0.6 * measures.assistant) * (1.0 - 0.5 * measures.repetition) * (1.0 - 0.4 * measures.idle)


def _score_consistency(measures: Measures) -> float:
    return _score_soundness(measures) * _weigh_parts((0.5, measures.voice), (0.5, measures.focus))


def _score_lore_accuracy(measures: Measures) -> float:
    value = _weigh_parts((0.5, measures.facts), (0.5, measures.focus))
    return value * (0.2 if measures.banned else 1.0)


def _score_engagingness(measures: Measures) -> float:
    return _score_soundness(measures) * _weigh_parts((0.6, measures.hook), (0.4, measures.focus))


def _score_responsiveness(measures: Measures) -> float:
    return _weigh_parts((0.7, measures.answers), (0.3, measures.focus))


def _score_topicality(measures: Measures) -> float:
    return max(measures.focus, measures.answers)


def _score_knowledge_boundary(measures: Measures, mentions: _EventMentions) -> float:
    """A reply that is off topic earns nothing for keeping to limits."""
    if mentions.gives_away:
        return 0.0
    return (0.2 if measures.banned else 1.0) * _score_topicality(measures)


def _score_event_grounding(measures: Measures, mentions: _EventMentions, called: bool) -> float:
    if any(claim.source is None for claim in mentions.claims):
        return 0.25 * _score_topicality(measures)
    if called and not mentions.takes_up:
        return 0.5 * _score_topicality(measures)
    return _score_topicality(measures)


def _score_relevance(measures: Measures) -> float:
    """For criteria that words cannot measure: whether the reply is on topic. Words of the conversation count only as
    far as the line is answered, so repeating the conversation earns nothing."""
    focus = min(measures.focus, measures.answers)
    return _weigh_parts((0.6, measures.answers), (0.4, focus)) * (1.0 - 0.5 * measures.repetition)


_MEASURED_CRITERIA: Final[Mapping[str, Callable[[Measures], float]]] = {
    "in_character_consistency": _score_consistency,
    "lore_accuracy": _score_lore_accuracy,
    "engagingness": _score_engagingness,
    "responsiveness": _score_responsiveness,
}
