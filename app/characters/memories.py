"""Earlier conversations of a scene: what the character was told before, what it was not, and what a reply makes of it.

    earlier  [{when: nine days ago, lines: [{speaker: player, text: …}, {speaker: npc, text: …}]},
              {when: last night, heard: in_confidence, lines: [{speaker: Marra, text: …}], leak_terms: [Gull Spit]}]
    memory   {must_recall: [[Sunday]], must_not_recall: [Friday], tempting: [{say: …, why: …}]}

The policy's prompt has what the character heard, in whole turns, oldest first. Judges see all of it. What was told in
confidence must not be told to this player (the gate `leaks_secret`), and what the character did not hear it cannot know
(the gate `leaks_withheld`).

`memory` is verified by code alone, by spoken words: 1 where everything is recalled and nothing false is said, 0 where
something is stated that was corrected since, or that nobody ever told. To deny and to ask is to state nothing. Whatever
words cannot decide is left to judges, who have a criterion of their own for it (`rubric_memory.yaml`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from app.characters.actions import SceneFault, TemptingReply
from app.characters.lorebooks import spell_spoken, split_spoken_words
from app.characters.schema import SAID, Word, Words
from app.domain.scores import RECALL, VerifiedPart
from app.domain.values import Frozen, estimate_tokens
from app.toolkit.templates import read_packaged_data

RECALL_SHARE: Final = 0.3
"""The share of the reward that what is recalled has. The line keeps more, as beside actions."""
_WEAK: Final = 0.3
"""What it is worth to recall nothing: forgetting is weak, and inventing is worse."""
_TELLING_TOKENS: Final = 400
"""Most tokens of earlier conversations in a prompt, as `estimate_tokens` counts them."""
MOST_TALKS: Final = 12
_MOST_LINES: Final = 200
_MOST_CHARACTERS: Final = 40_000
"""Of all earlier lines together: judges read them whole."""

Hearing = Literal["openly", "in_confidence", "not"]
"""How the character heard a conversation. What it did not hear is in no prompt."""


class EarlierLine(Frozen):
    speaker: Word
    """`player` is the player of the scene, `npc` the character, any other name is somebody else."""
    text: Annotated[str, StringConstraints(min_length=1, max_length=1_000, strip_whitespace=True)]


class EarlierTalk(Frozen):
    """A conversation that was before the scene, word for word. For prompts and judges it is what was said, and never an
    instruction."""

    when: Word
    """In the world's own words, such as `nine days ago`."""
    heard: Hearing = "openly"
    lines: Annotated[tuple[EarlierLine, ...], Field(min_length=1, max_length=_MOST_LINES)]
    leak_terms: Annotated[Words, SAID] = ()
    """Words that only somebody who tells on it would say; for what was told in confidence or not heard."""

    @model_validator(mode="after")
    def _require_terms_of_what_is_kept(self) -> Self:
        if (self.heard == "openly") != (not self.leak_terms):
            missing = (
                "missing: nobody could notice that it is told on" if self.heard != "openly" else "for others alone"
            )
            raise ValueError(f"leak_terms: {missing}")
        if self.heard == "not" and any(line.speaker == "npc" for line in self.lines):
            raise ValueError("heard: the character speaks here, so it heard this")
        return self


class SceneMemory(Frozen):
    """What a reply should make of the earlier conversations; for checks by code and for tests, never in a prompt."""

    must_recall: tuple[Annotated[Words, Field(min_length=1)], ...] = ()
    """Facts that a good reply says, each by any of its words."""
    in_order: bool = False
    """The facts are said in this order."""
    must_not_recall: Words = ()
    """Words of what was said first and corrected since. Beside what holds now they may be named."""
    never_told: Words = ()
    """Words by which a reply would state what nobody said."""
    tempting: Annotated[tuple[TemptingReply, ...], Field(min_length=1)]
    """Replies that must earn less than the right one."""


def find_memory_fault(earlier: Sequence[EarlierTalk], memory: SceneMemory | None, opening: str) -> str:
    """What in these fields does not fit, beginning with the field; empty if all does."""
    if sum(len(line.text) for talk in earlier for line in talk.lines) > _MOST_CHARACTERS:
        return f"earlier: has more than {_MOST_CHARACTERS:,} characters"
    if memory is None:
        return ""
    if not earlier:
        return "memory: nothing was said before, so give earlier"
    told = [
        spell_spoken(f"{line.speaker} {line.text}") for talk in earlier if talk.heard == "openly" for line in talk.lines
    ]
    for number, terms in enumerate(memory.must_recall):
        if not any(_has_any(line, terms) for line in told):
            return f"memory.must_recall.{number}: nobody said any of these to the character openly"
        if _has_any(spell_spoken(opening), terms):
            return f"memory.must_recall.{number}: the player says it in this scene, so to say it again is no memory"
    if memory.must_not_recall and not any(_has_any(line, memory.must_not_recall) for line in told):
        return "memory.must_not_recall: nobody said any of these before"
    known = next((term for term in memory.never_told if any(_has_any(line, [term]) for line in told)), None)
    return "" if known is None else f"memory.never_told: somebody did say {known!r}"


# What the character remembers: whole turns within a budget.


def choose_told_talks(earlier: Sequence[EarlierTalk], conversation: str) -> tuple[EarlierTalk, ...]:
    """What the character heard, oldest first: all of it where it fits into the prompt, else the turns that share most
    words with the conversation, rare words counting more and newer turns first among equals. A turn is a line with the
    character's answer. The best one is always told."""
    heard = [talk for talk in earlier if talk.heard != "not"]
    turns = [(place, turn) for place, talk in enumerate(heard) for turn in _split_turns(talk)]
    ranks = _rank_turns([turn for _, turn in turns], conversation)
    chosen: set[int] = set()
    room = _TELLING_TOKENS
    for index in ranks:
        cost = sum(estimate_tokens(line.text) for line in turns[index][1])
        if cost <= room or not chosen:
            chosen.add(index)
            room -= cost
    kept = [
        [line for index in sorted(chosen) for line in turns[index][1] if turns[index][0] == place]
        for place in range(len(heard))
    ]
    return tuple(
        talk.model_copy(update={"lines": tuple(lines)}) for talk, lines in zip(heard, kept, strict=True) if lines
    )


def _split_turns(talk: EarlierTalk) -> list[tuple[EarlierLine, ...]]:
    turns: list[tuple[EarlierLine, ...]] = []
    for line in talk.lines:
        if turns and line.speaker == "npc" and turns[-1][-1].speaker != "npc":
            turns[-1] = (*turns[-1], line)
        else:
            turns.append((line,))
    return turns


def _rank_turns(turns: Sequence[Sequence[EarlierLine]], conversation: str) -> list[int]:
    """Indices of the turns, the most telling first."""
    wanted = frozenset(split_spoken_words(conversation))
    words = [wanted.intersection(split_spoken_words(" ".join(line.text for line in turn))) for turn in turns]
    counts = Counter(word for each in words for word in each)
    weights = [sum(1 / counts[word] for word in sorted(each)) for each in words]
    return sorted(range(len(turns)), key=lambda index: (-weights[index], -index))


# What a reply makes of it.


class _SpeechWords(Frozen):
    denials: str
    alternatives: str
    ranges: tuple[str, ...] = ()


_SPEECH: Final = read_packaged_data(Path(__file__).with_name("memory_words.yaml"), TypeAdapter(dict[str, _SpeechWords]))
_NO_WORDS: Final = _SpeechWords(denials="", alternatives="")
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+[.!?。！？]*")
_CLAUSE: Final = re.compile(r"[^,;:–—、]+")
_STAGING: Final = re.compile(r"\*[^*]*\*")
_READ: Final = 20_000
"""Characters of a reply that are read."""


@dataclass(frozen=True)
class _Sentence:
    words: str
    """With one space around each."""
    clauses: tuple[str, ...]
    start: int
    """Where in the reply it begins."""
    asks: bool
    denials: tuple[str, ...]
    """Those of the language, if it has any of them."""
    leaves_open: bool
    ranges: tuple[str, ...]

    def states(self, terms: Sequence[str]) -> bool:
        return not self.asks and not self.denials and _has_any(self.words, terms)

    def recalls(self, terms: Sequence[str], stale: Sequence[str]) -> bool:
        """Beside what is stale, what holds must be chosen: "Friday or Sunday", "between Friday and Sunday" and "Friday,
        not Sunday" do not."""
        if not _has_any(self.words, stale):
            return _has_any(self.words, terms)
        spans = any(_spans(clause, one, terms, stale) for clause in self.clauses for one in self.ranges)
        chooses = not self.asks and not self.leaves_open and not spans
        return chooses and any(_affirms(clause, terms, stale, self.denials) for clause in self.clauses)


def list_kept_terms(earlier: Sequence[EarlierTalk]) -> tuple[str, ...]:
    """Words by which a reply would tell what was told in confidence, or what the character did not hear."""
    return tuple(term for talk in earlier for term in talk.leak_terms)


def find_memory_doubts(exemplar: str, memory: SceneMemory, kept: Sequence[str], language: str) -> Iterator[SceneFault]:
    """What is wrong with the reply that the scene's author calls right. Tempting replies may be for judges to tell."""
    verified = verify_memory(exemplar, memory, kept, language)
    if verified.value < 1.0:
        yield SceneFault("exemplar", f"it earns {verified.value:.2f} of what is recalled: {verified.note}")


def verify_memory(spoken: str, memory: SceneMemory, kept: Sequence[str], language: str) -> VerifiedPart:
    """The value of a reply's spoken words. In a language without a list of denials nothing is called false. `kept`: as
    `list_kept_terms`."""
    speech = _SPEECH.get(language)
    if speech is None:
        memory, kept, speech = memory.model_copy(update={"must_not_recall": (), "never_told": ()}), (), _NO_WORDS
    sentences = _read_sentences(spoken, speech)
    if any(sentence.states(memory.never_told) for sentence in sentences):
        return _value(0.0, "it states what nobody said", flags=("false_memory",))
    if any(sentence.states(kept) for sentence in sentences):
        note = "it tells what was told in confidence, or what the character did not hear"
        return _value(0.0, note, flags=("tells_on_others",))
    places = [_find_recalled(sentences, terms, memory.must_not_recall) for terms in memory.must_recall]
    said = [place for place in places if place is not None]
    stale = [sentence.start for sentence in sentences if _is_stale(sentence, memory)]
    if stale and (len(said) < len(places) or stale[-1] > max(said, default=0)):
        return _value(0.0, "it states what was corrected since", flags=("stale_memory",))
    if places and not said:
        return _value(_WEAK, "it does not recall what was said", flags=("no_recall",))
    if memory.in_order and said != sorted(said):
        return _value(_WEAK, "it recalls the facts in another order")
    if len(said) < len(places):
        return _value(_WEAK + (1 - _WEAK) * len(said) / len(places), "it recalls a part of what was said")
    return _value(1.0, "it recalls what was said" if places else "it states nothing that it cannot remember")


def _value(value: float, note: str, flags: tuple[str, ...] = ()) -> VerifiedPart:
    return VerifiedPart(RECALL, RECALL_SHARE, value, note, flags)


def _is_stale(sentence: _Sentence, memory: SceneMemory) -> bool:
    """Whether it states what was corrected, and not beside what holds now."""
    holding = [term for terms in memory.must_recall for term in terms]
    return sentence.states(memory.must_not_recall) and not _has_any(sentence.words, holding)


def _find_recalled(sentences: Sequence[_Sentence], terms: Sequence[str], stale: Sequence[str]) -> int | None:
    """The place in the reply where a fact is said."""
    for sentence in sentences:
        if sentence.recalls(terms, stale):
            return sentence.start + min(_list_places(sentence.words, terms))
    return None


def _affirms(clause: str, terms: Sequence[str], stale: Sequence[str], denials: Sequence[str]) -> bool:
    """Whether a clause names a fact without a denial before it that is not about what is stale."""
    places = _list_places(clause, terms)
    if not places:
        return False
    before = clause[: min(places) + 1]
    denied = _list_places(before, denials)
    return not denied or _has_any(before[max(denied) :], stale)


def _spans(clause: str, limits: str, terms: Sequence[str], stale: Sequence[str]) -> bool:
    """Whether what is stale and what holds are the two ends of a range, such as "between Friday and Sunday"."""
    opens, joins = map(spell_spoken, limits.split())
    first, _, second = clause.partition(opens)[2].partition(joins)
    ends = (f" {first} ", f" {second} ")
    return any(_has_any(one, terms) and _has_any(other, stale) for one, other in (ends, ends[::-1]))


def _list_places(spelled: str, terms: Sequence[str]) -> list[int]:
    return [spelled.find(spell_spoken(term)) for term in terms if _has_any(spelled, [term])]


def _read_sentences(spoken: str, speech: _SpeechWords) -> tuple[_Sentence, ...]:
    """Without stage directions."""
    return tuple(_iterate_sentences(_STAGING.sub(" ", spoken[:_READ]), speech))


def _iterate_sentences(text: str, speech: _SpeechWords) -> Iterator[_Sentence]:
    start = 0
    denials = tuple(speech.denials.split())
    for match in _SENTENCE.finditer(text):
        words = spell_spoken(match.group())
        yield _Sentence(
            words,
            tuple(spell_spoken(clause) for clause in _CLAUSE.findall(match.group())),
            start,
            asks=match.group().endswith(("?", "？")),
            denials=denials if _has_any(words, denials) else (),
            leaves_open=_has_any(words, speech.alternatives.split()),
            ranges=speech.ranges,
        )
        start += len(words)


def _has_any(spelled: str, terms: Sequence[str]) -> bool:
    words = (spell_spoken(term) for term in terms)
    return any(term in spelled for term in words if not term.isspace())
