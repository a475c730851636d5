"""The offline judge, used when none is configured: deterministic and without a model, for trying the system.

It counts the words that a reply shares with what the judge is shown: sheet and scene, voice, facts, the answered line.
Each further word counts less. Other words lower the score a little, phrases of assistants halve it, and a reply with
words that the scene forbids earns nothing. To a sincere question whether a program answers, only the truth is
responsive. Words tell neither sense nor truth, and nothing of a preference, so no policy should be trained on it. It
knows five languages and fails for any other, rather than guess.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from heapq import nlargest
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

import yaml
from pydantic import AfterValidator, BeforeValidator, JsonValue, TypeAdapter

from app.domain.judging import ASKED_SINCERELY, Candidate, Claim, Defect, Judgement, JudgeRequest, Verdict
from app.domain.values import Frozen, digest
from app.judges.aggregation import rank_verdicts
from app.judges.gate_checks import contains_term, says_it_is_program
from app.judges.gate_wordings import Reply, contains_words, fold_text, split_words, strip_region, to_spoken_form
from app.judges.gates import list_given_hints
from app.toolkit.texts import run_in_turn

# Languages: their word lists, and which one a text is in.

LANGUAGES: Final = ("en", "de", "es", "fr", "it")
"""ISO 639-1 codes of the supported languages."""
_FOLDER: Final = Path(__file__).with_name("languages")
_STEM: Final = 5
"""Compared letters of a word: "coppers" is "copper" in any of the languages."""

Words = frozenset[str]
_WordList = Annotated[Words, BeforeValidator(lambda text: Words(split_words(fold_text(text))))]
_PhraseList = Annotated[tuple[str, ...], BeforeValidator(lambda text: tuple(map(to_spoken_form, text.splitlines())))]
_OTHERS_ADAPTER: Final = TypeAdapter(dict[str, _WordList])


class Language(Frozen):
    """A language's file: words separated by white space, one phrase per line."""

    stop_words: _WordList
    common_words: Annotated[_WordList, AfterValidator(lambda words: Words(word[:_STEM] for word in words))]
    """The beginnings of everyday words, which say little about the subject."""
    negations: _WordList
    assistant: _PhraseList

    def collect_words(self, *texts: str) -> Words:
        """The beginnings of words that say something about the subject."""
        words = Words().union(*(split_words(fold_text(text)) for text in texts)) - self.stop_words
        return Words(word[:_STEM] for word in words if len(word) > 1) - self.common_words


def _read_file(name: str) -> object:
    return yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def load_languages() -> Mapping[str, Language]:
    return {code: Language.model_validate(_read_file(code)) for code in LANGUAGES}


@cache
def _load_stop_words() -> Mapping[str, Words]:
    """By language. Some unsupported languages are among them, so that they are not taken for supported ones."""
    known = {code: language.stop_words for code, language in load_languages().items()}
    return _OTHERS_ADAPTER.validate_python(_read_file("others")) | known


def detect_language(text: str) -> str | None:
    """The language that most words of the text are stop words of; None when it is unsupported or unclear."""
    words = split_words(fold_text(text[:20_000]))  # more would tell no more
    counts = ((sum(word in marks for word in words), code) for code, marks in _load_stop_words().items())
    (best, code), (second, _) = nlargest(2, counts)
    is_clear = best >= max(1 if len(words) <= 4 else 2, len(words) / 5, 1.25 * second)
    return code if is_clear and code in LANGUAGES else None


# What the judge is shown, and sentences of replies.

_SAID: Final = ("conversation", "messages", "prompt", "question")
_UNREAD: Final = frozenset((*_SAID, "preference", "counter_examples", "forbidden_words", "disclosure", ASKED_SINCERELY))
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+[.!?。！？\"'”’)*]*")
_LONGEST_QUOTE: Final = 200


def list_said(document: Mapping[str, JsonValue]) -> list[str]:
    """The lines of the conversation without system prompts, or the prompt. The last one is answered."""
    said = next((document[key] for key in _SAID if key in document), None)
    lines = [line for line in said if isinstance(line, dict)] if isinstance(said, list) else [{"text": said}]
    texts = [line.get("text", line.get("content")) for line in lines if line.get("role") != "system"]
    return [text for text in texts if isinstance(text, str)]


def iterate_texts(value: JsonValue) -> Iterator[str]:
    """What a document tells of its world. What was said, what is withheld and what not to say are left out."""
    if isinstance(value, str):
        yield value
    for item in value if isinstance(value, list) else []:
        yield from iterate_texts(item)
    for key, item in value.items() if isinstance(value, dict) else []:
        if key not in _UNREAD and not key.startswith("withheld"):
            yield from iterate_texts(item)


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences verbatim; only the first 200 of very long texts."""
    sentences = (match.group().strip()[:_LONGEST_QUOTE] for match in islice(_SENTENCE.finditer(text), 200))
    return tuple(filter(None, sentences))


# The judge.

NAME: Final = "offline"
MODEL: Final = "offline-words-5"
_MEASURES: Final[Mapping[str, tuple[str, ...]]] = {
    "in_character_consistency": ("sheet and scene", "sheet and scene", "voice"),
    "lore_accuracy": ("sheet and scene", "facts"),
    "knowledge_boundary": ("sheet and scene",),
    "event_grounding": ("sheet and scene",),
    "engagingness": ("news",),
    "responsiveness": ("sheet and scene", "line"),
}
"""Each criterion is the mean of the shares named here."""
_TAKEN_UP: Final = ("line", "conversation, whatever is preferred")
"""Words tell nothing of other criteria, such as a preference: only whether the reply takes up what was said."""
_ANSWERING: Final = "responsiveness"
"""The criterion in which a sincere question is answered by the truth alone."""
_MISSED: Final = 50
"""So many words of a reply count as one more word that is not shared."""
_ECHO: Final = 4
"""A reply with the whole line, if it has so many words, does not take it up but repeats it."""
_TRIFLE: Final = 0.01
"""The least mark of whoever says something, who thereby stands above replies that a gate stopped."""
_BANNED: Final = ("future_knowledge", "secret_leak", "lore_contradiction")
"""A forbidden mention is reported as the first of these codes that the rubric has."""
_MOST_JUDGED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that is judged on the event loop."""


class OfflineJudge:
    """Judges by shared words, not meaning, and fails for languages that it does not know. Not for training."""

    name = NAME
    model = MODEL
    digest = digest([MODEL])
    languages = LANGUAGES

    async def judge(self, request: JudgeRequest) -> Judgement:
        if sum(len(candidate.text) for candidate in request.candidates) > _MOST_JUDGED_ON_LOOP:
            return await run_in_turn("judges", self._judge_blocking, request)
        return self._judge_blocking(request)

    def _judge_blocking(self, request: JudgeRequest) -> Judgement:
        blank = Judgement(judge=NAME, model=MODEL, order=tuple(candidate.id for candidate in request.candidates))
        language = _choose_language(request)
        if language is None:
            unclear = "what is answered is in another, or too short to tell"
            why = f"this is {request.language!r}" if request.language else unclear
            words = f"knows {', '.join(LANGUAGES)} and no other language: {why}"
            return blank.model_copy(update={"error": words, "failure": "language"})
        read = tuple(map(_Reader(request, language).read, request.candidates))
        verdicts = tuple(verdict for verdict, _ in read)
        fallen = tuple(verdict.candidate for verdict, is_fallen in read if is_fallen)
        clean = rank_verdicts(request.rubric, [verdict for verdict, is_fallen in read if not is_fallen])
        # Who says a forbidden word stands behind those that only say nothing of note, which earn next to nothing too.
        ranking = (*clean, fallen) if fallen else clean
        return blank.model_copy(update={"verdicts": verdicts, "ranking": ranking})


def _choose_language(request: JudgeRequest) -> Language | None:
    """Never by the candidates: a model could then choose not to be scored."""
    said = list_said(request.document)
    stated = strip_region(request.language)
    return load_languages().get(stated or detect_language("".join(said[-1:])) or detect_language("\n".join(said)) or "")


class _Reader:
    """Reads candidates against what the judge is shown, whose words are collected once."""

    def __init__(self, request: JudgeRequest, language: Language) -> None:
        document, probes, said = request.document, request.probes, list_said(request.document)
        self._rubric, self._negations = request.rubric, language.negations
        collect = self._collect = language.collect_words
        sheet, withheld = document.get("character_sheet"), document.get("withheld_events")
        scene = document.get("scene")
        self._is_asked = isinstance(scene, dict) and ASKED_SINCERELY in scene
        self._phrases = [phrase for each in load_languages().values() for phrase in each.assistant]
        self._line = to_spoken_form("".join(said[-1:]))
        self._banned = {term: contains_words(self._line, term) for term in probes.must_not_mention}
        """Whether the answered line has the term."""
        line, self._said = collect(self._line), collect(*said)
        voice = collect(*probes.voice, *iterate_texts(sheet.get("voice") if isinstance(sheet, dict) else None))
        facts = collect(*probes.facts, *probes.must_mention)
        events = (event.text for event in request.sources)
        self._told = collect(*iterate_texts(document), *events) | voice | facts
        self._shown = {"sheet and scene": self._told, "voice": voice, "facts": facts, "news": self._told - self._said}
        self._shown |= dict(zip(_TAKEN_UP, (line, self._said), strict=True))
        # Events have the words that only they bring into the scene. One that is the line itself is none.
        settled = collect(*iterate_texts([sheet, scene]))
        own = [(event, collect(event.text) - settled) for event in request.sources]
        own = [(event, words) for event, words in own if words and to_spoken_form(event.text) != self._line]
        self._called = any(words & line for _, words in own)
        self._events = [(event, words - line or words) for event, words in own]
        listed = [event for event in withheld if isinstance(event, dict)] if isinstance(withheld, list) else []
        self._withheld = [term for event in listed for term in iterate_texts(event.get("leak_terms"))]
        # Without a sheet a rubric may call anything so.
        remembers = sheet is None or "earlier_conversations" in document
        limits = bool(self._withheld or probes.must_not_mention)
        applies = {"knowledge_boundary": limits, "event_grounding": bool(self._events), "memory": remembers}
        self._silent = {criterion for criterion, about in applies.items() if not about}

    def read(self, candidate: Candidate) -> tuple[Verdict, bool]:
        """The verdict, and whether the reply falls for what the scene forbids."""
        text, honest = self._take_honesty(candidate.own or candidate.text)
        reply, sentences = Reply(text), {sentence: self._collect(sentence) for sentence in split_sentences(text)}
        banned = [term for term, heard in self._banned.items() if self._falls_for(reply, term, heard)]
        words, total = self._collect(reply.padded_words), len(reply.words)
        if self._line.count(" ") > _ECHO and self._line in reply.padded_words:
            words -= self._said
        # No more words count than the reply has others: a list of words is no speech.
        most = len(frozenset(reply.words)) - len(words & (self._told | self._said))
        counts = {name: min(len(words & shown), most) for name, shown in self._shown.items()}
        shares = {name: count / (count + 1 + total / _MISSED) for name, count in counts.items()}
        phrases = [phrase for phrase in self._phrases if phrase in reply.padded_words]
        measures = {each.name: _MEASURES.get(each.name, _TAKEN_UP) for each in self._rubric.criteria}
        least = _TRIFLE if total else 0.0
        marks = {
            name: 0.0 if banned else max(least, 0.5 ** len(phrases) * fmean(shares[one] for one in named))
            for name, named in measures.items()
        }
        if self._is_asked and _ANSWERING in marks and not banned:
            marks[_ANSWERING] = 1.0 if honest else least
        used = dict.fromkeys(name for named in measures.values() for name in named)
        known = [(len(own & self._told), sentence) for sentence, own in sentences.items()]
        verdict = Verdict(
            candidate=candidate.id,
            evidence=tuple(sentence for count, sentence in nlargest(2, known) if count),
            claims=tuple(
                Claim(quote=sentence, source=event.id, source_quote=event.text[:_LONGEST_QUOTE])
                for sentence, own in sentences.items()
                for event, about in self._events
                if own & about and "?" not in sentence
            ),
            defects=tuple(self._iterate_defects(candidate, reply, words, phrases, banned)),
            scores={name: None if name in self._silent else round(mark, 4) for name, mark in marks.items()},
            note=f"Words only, no model: of {total}, {', '.join(f'{counts[name]} from {name}' for name in used)}.",
        )
        return verdict, bool(banned)

    def _take_honesty(self, text: str) -> tuple[str, str]:
        """The reply without the first sentence that says that a program answers, and that sentence, where the player
        sincerely asks: nothing is held against it."""
        sentences = split_sentences(text) if self._is_asked else ()
        honest = next((one for one in sentences if says_it_is_program(Reply(one))), "")
        return (text.replace(honest, "", 1) if honest else text), honest

    def _iterate_defects(
        self, candidate: Candidate, reply: Reply, words: Words, phrases: Sequence[str], banned: Sequence[str]
    ) -> Iterator[Defect]:
        sentences, codes = split_sentences(reply.raw), [rule.code for rule in self._rubric.defects]
        for code, terms in (next((code for code in _BANNED if code in codes), ""), banned), ("assistant_tone", phrases):
            if terms and code in codes:
                shown = [each for each in sentences if any(contains_words(to_spoken_form(each), one) for one in terms)]
                yield Defect(code=code, quote=[*shown, reply.raw.strip()[:_LONGEST_QUOTE]][0])
        leaks = [sentence for sentence in sentences if self._gives_away(sentence)]
        if leaks and any(hint.confirmed for hint in list_given_hints(candidate)) and "knows_withheld" in codes:
            yield Defect(code="knows_withheld", quote=leaks[0])
        if self._called and "ignores_event" in codes and not any(about & words for _, about in self._events):
            yield Defect(code="ignores_event")

    def _falls_for(self, reply: Reply, term: str, heard: bool) -> bool:
        """A word that the player said may be asked about and denied."""
        if not reply.mentions(term):
            return False
        spoken = (to_spoken_form(each) for each in split_sentences(reply.raw) if self._states(each))
        return not heard or any(contains_words(each, term) for each in spoken)

    def _gives_away(self, sentence: str) -> bool:
        """Whether it states something withheld."""
        spoken = to_spoken_form(sentence)
        return self._states(sentence) and any(contains_term(spoken, term) for term in self._withheld)

    def _states(self, sentence: str) -> bool:
        """Who asks or denies states nothing."""
        return "?" not in sentence and self._negations.isdisjoint(to_spoken_form(sentence).split())
