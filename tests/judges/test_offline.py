"""The offline judge: sensible, repeatable, and not to be bought with words."""

import asyncio
import operator
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.characters.casting import (
    Staging,
    build_case_document,
    build_scene_probes,
    cast_all,
    list_claimable_sources,
)
from app.characters.loading import read_scenes, read_sheets
from app.cli.judges import load_packaged_specimens
from app.domain.judging import (
    Candidate,
    Defect,
    DefectRule,
    Judgement,
    JudgeRequest,
    Probes,
    Rubric,
    apply_bounds,
    compute_absolute_score,
    find_cap,
)
from app.domain.values import Frozen
from app.envs.npc_arena.environment import NpcArena
from app.judges.aggregation import rank_candidates
from app.judges.gold_cases import GoldCase, load_packaged_templates
from app.judges.offline import (
    LANGUAGES,
    OfflineJudge,
    detect_language,
    iterate_texts,
    list_said,
    load_languages,
)
from tests.judges.scripted import build_rubric
from tests.support.tables import read_table


class Tables(Frozen):
    said: dict[str | None, tuple[str, ...]]
    generic: dict[str, tuple[str, ...]]
    document: dict[str, JsonValue]


TABLES = read_table(__file__, "offline.yaml", Tables)

ROOT = Path(__file__).parents[2]
NAMES = ("in_character_consistency", "lore_accuracy", "engagingness", "responsiveness")
DEFECTS = ("future_knowledge", "assistant_tone")
RUBRIC = build_rubric(*NAMES, defects=tuple(DefectRule(code=code, description="") for code in DEFECTS))
PREFERENCE = build_rubric("kindness")
DOCUMENT = TABLES.document
PROBES = Probes(
    must_not_mention=("poison", "toll bridge"),
    voice=("coin on the wood", "stranger"),
    facts=("The ferry sank at the fair and took nine oxen.",),
)
IN_CHARACTER = (
    "No ferry, stranger. She sank at the fair with nine oxen. *wipes a mug* Coin on the wood, or sleep in the marsh?"
)
ASSISTANT = (
    "I'd be happy to help with the ferry! There are several things to consider. Let me know if you have any questions."
)
UNRELATED = "Chloroplasts convert sunlight into chemical energy. Mitochondria produce adenosine triphosphate."


def request(*candidates: str, rubric: Rubric = RUBRIC, probes: Probes = PROBES) -> JudgeRequest:
    return JudgeRequest(
        rubric=rubric,
        document=DOCUMENT,
        probes=probes,
        candidates=tuple(Candidate(id=f"c{number}", text=text) for number, text in enumerate(candidates)),
    )


def judged(*candidates: str, rubric: Rubric = RUBRIC, probes: Probes = PROBES) -> Judgement:
    return asyncio.run(OfflineJudge().judge(request(*candidates, rubric=rubric, probes=probes)))


def standings(*candidates: str, rubric: Rubric = RUBRIC) -> list[float]:
    return [compute_absolute_score(rubric, verdict.scores) for verdict in judged(*candidates, rubric=rubric).verdicts]


@pytest.mark.parametrize("rubric", [RUBRIC, PREFERENCE], ids=["npc", "preference"])
def test_character_before_assistant_before_nonsense_before_nothing(rubric: Rubric) -> None:
    judgement = judged(UNRELATED, "", ASSISTANT, IN_CHARACTER, rubric=rubric)
    order = [name for tier in judgement.ranking for name in tier]
    assert order[:2] == ["c3", "c2"]
    assert standings("", rubric=rubric) == [0.0]


def test_it_names_itself_costs_nothing_quotes_and_says_the_same_again() -> None:
    judgement = judged(IN_CHARACTER, ASSISTANT)
    told = (judgement.judge, judgement.model, judgement.prompt, judgement.calls, judgement.cost_usd)
    assert told == ("offline", "offline-words-5", "", 0, None)
    assert judgement == judged(IN_CHARACTER, ASSISTANT)
    verdict = judgement.verdicts[0]
    assert verdict.note == (
        "Words only, no model: of 23, 9 from sheet and scene, 3 from voice, 5 from facts, 7 from news, 2 from line."
    )
    assert [quote in IN_CHARACTER for quote in verdict.evidence] == [True, True]


def test_equal_replies_are_tied() -> None:
    assert judged(ASSISTANT, IN_CHARACTER, ASSISTANT).ranking == (("c1",), ("c0", "c2"))
    assert rank_candidates({"a": 0.5, "b": 0.50001, "c": 0.9}) == (("c",), ("a", "b"))


@pytest.mark.parametrize(
    ("text", "defects"),
    [
        (IN_CHARACTER, ()),
        (
            "They say it was poison, stranger.",
            (Defect(code="future_knowledge", quote="They say it was poison, stranger."),),
        ),
        (ASSISTANT, (Defect(code="assistant_tone", quote="I'd be happy to help with the ferry!"),)),
    ],
)
def test_defects(text: str, defects: tuple[Defect, ...]) -> None:
    assert judged(text).verdicts[0].defects == defects


def test_only_defects_of_the_rubric_are_reported() -> None:
    assert judged("Poison! " + ASSISTANT, rubric=PREFERENCE).verdicts[0].defects == ()


def test_a_preference_is_not_read_and_the_note_says_so() -> None:
    """Whatever is preferred: criteria that words cannot tell measure whether the reply takes up what was said."""
    wishes = ("Prefer the shorter reply.", "Prefer the longer reply, about a ferry at the fair.")
    read = [
        asyncio.run(
            OfflineJudge().judge(request(IN_CHARACTER, rubric=PREFERENCE).model_copy(update={"document": document}))
        )
        for document in ({"preference": wish, "conversation": DOCUMENT["conversation"]} for wish in wishes)
    ]
    notes = {judgement.verdicts[0].note for judgement in read}
    assert (read[0] == read[1], notes) == (
        True,
        {"Words only, no model: of 23, 2 from line, 2 from conversation, whatever is preferred."},
    )


def test_a_list_of_words_is_no_speech() -> None:
    known = load_languages()["en"]
    words = {*" ".join((*PROBES.facts, *iterate_texts(DOCUMENT))).split()}
    listed = " ".join(sorted(word for word in words if known.collect_words(word)))
    said, *lists = standings(IN_CHARACTER, listed, f"{listed} " * 9)
    assert (said > 0.6, max(lists) < 0.3) == (True, True)


def test_what_must_be_mentioned_decides_about_the_facts() -> None:
    probes = Probes(must_mention=("ferry", "oxen"))
    values = [
        verdict.scores["lore_accuracy"] or 0.0
        for verdict in judged(
            "Nothing crosses.", "The ferry? No.", "The ferry and the oxen: sunk.", probes=probes
        ).verdicts
    ]
    assert values == sorted(values)
    assert len(set(values)) == 3


def test_saying_the_line_back_is_no_answer() -> None:
    echo, answer = judged("Is the ferry still crossing the marsh tonight?", "The ferry sank in the marsh.").verdicts
    assert (echo.scores["responsiveness"] or 0.0) < (answer.scores["responsiveness"] or 0.0)


FILLER = read_table(__file__, "filler.yaml", tuple[str, ...])


@pytest.mark.parametrize("filler", FILLER)
@pytest.mark.parametrize("text", [IN_CHARACTER, ASSISTANT, UNRELATED, "Aye.", "The toll is two coppers."])
def test_padding_never_pays(text: str, filler: str) -> None:
    plain, *padded = standings(text, f"{text}\n{filler}", f"{filler}\n{text}", f"{filler}\n{text}\n" + filler * 3)
    assert max(padded) <= plain


@given(st.lists(st.sampled_from(["zorp", "quux", "blarg", "you", "the", "i", "?", "!"]), max_size=40))
def test_words_that_say_nothing_earn_nothing(noise: list[str]) -> None:
    plain, padded = standings(IN_CHARACTER, IN_CHARACTER + "\n" + " ".join(noise))
    assert padded <= plain


IDLE = read_table(__file__, "idle.yaml", dict[str, str])


@given(
    st.lists(st.sampled_from(["No ferry, stranger.", "The ferry sank at the fair?", IDLE["en"], "You!", "Ferry?"])),
    st.integers(0, 4),
)
def test_text_that_says_nothing_new_can_only_lower(more: list[str], place: int) -> None:
    """What the reply says itself included, wherever it stands."""
    sentences = ["No ferry, stranger.", "She sank at the fair with nine oxen.", "*wipes a mug*", "Coin on the wood?"]
    plain, padded = standings(
        "\n".join([*sentences, "Ferry."]), "\n".join([*sentences[:place], *more, *sentences[place:], "Ferry."])
    )
    assert padded <= plain


def test_an_idle_sentence_costs_in_every_language() -> None:
    unpunished = [
        (specimen.cast.scene.id, plain, padded)
        for specimen in load_packaged_specimens()
        for idle in [IDLE[specimen.language]]
        for plain, *padded in [_standings_of(specimen, "{}", f"{{}} {idle}", f"{idle} {{}}")]
        if plain <= max(padded)
    ]
    assert (unpunished, {"en", "de", "es", "fr"} <= {specimen.language for specimen in load_packaged_specimens()}) == (
        [],
        True,
    )


def _standings_of(specimen: GoldCase, *forms: str) -> list[float]:
    asked = JudgeRequest(
        rubric=RUBRIC,
        document=specimen.document,
        probes=specimen.probes,
        language=specimen.language,
        candidates=tuple(Candidate(id=form, text=form.replace("{}", specimen.clean)) for form in forms),
    )
    return [
        compute_absolute_score(RUBRIC, verdict.scores) for verdict in asyncio.run(OfflineJudge().judge(asked)).verdicts
    ]


@given(st.text(max_size=300))
def test_any_text_has_a_score(text: str) -> None:
    verdict = judged(text).verdicts[0]
    assert set(verdict.scores) == set(NAMES)
    assert all(quote in text for quote in verdict.evidence)


@pytest.mark.parametrize("unit", ["a ", "ferry ", ".", "ferry? ", "1. x\n", "the ferry sank ", "鍵", "\u0301"])
def test_long_texts_take_time_in_proportion(unit: str) -> None:
    began = time.process_time()
    judged(unit * (200_000 // len(unit)))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (DOCUMENT, "Is the ferry still crossing the marsh tonight?"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "Hi"),
        ({"prompt": "Why?"}, "Why?"),
        ({"conversation": []}, ""),
        ({"conversation": [3]}, ""),
        ({}, ""),
    ],
)
def test_the_line_that_is_answered(document: dict[str, JsonValue], line: str) -> None:
    """Neither it nor what is withheld is the world."""
    assert ("".join(list_said(document)[-1:]), {line, "The duke is poisoned."} & {*iterate_texts(document)}) == (
        line,
        set(),
    )


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in TABLES.said.items() for text in texts])
def test_what_language_a_text_is_in(code: str | None, text: str) -> None:
    assert detect_language(text) == code


@pytest.mark.parametrize("code", LANGUAGES)
def test_words_of_every_day_say_nothing(code: str) -> None:
    known = load_languages()[code]
    assert (known.collect_words(*known.stop_words, *known.common_words), "  " in known.assistant) == (
        frozenset(),
        False,
    )


def test_the_request_says_which_language_it_is_or_what_was_said_does() -> None:
    """Never what the candidates are written in."""
    answers = {
        name: asyncio.run(OfflineJudge().judge(asked))
        for name, asked in {
            "told": request(IN_CHARACTER).model_copy(update={"document": {"prompt": "Basil?"}, "language": "en-GB"}),
            "line": request("Ja, sicher, das ist nicht so."),
            "said": request(IN_CHARACTER).model_copy(
                update={"document": {"messages": [{"content": "Where was it that you said?"}, {"content": "Basil?"}]}}
            ),
            "other": request(IN_CHARACTER).model_copy(update={"language": "nl"}),
            "nothing": request(IN_CHARACTER).model_copy(update={"document": {"prompt": "Basil?"}}),
        }.items()
    }
    assert {name: (answer.failure, answer.error, len(answer.verdicts)) for name, answer in answers.items()} == {
        **dict.fromkeys(("told", "line", "said"), (None, None, 1)),
        "other": ("language", "knows en, de, es, fr, it and no other language: this is 'nl'", 0),
        "nothing": (
            "language",
            "knows en, de, es, fr, it and no other language: what is answered is in another, or too short to tell",
            0,
        ),
    }


class Spread(NamedTuple):
    """What the judge gives replies to the scenes of one character, by whose they are."""

    own: tuple[float, ...]
    others: tuple[float, ...]
    generic: tuple[float, ...]


@cache
def measure_spreads() -> Mapping[str, Spread]:
    """Over every scene of every sheet that ships."""
    found: dict[str, Spread] = defaultdict(lambda: Spread((), (), ()))
    replies = {case.cast.scene.id: (case.clean, case.rivals) for case in load_packaged_specimens()}
    for cast in cast_all(read_sheets(ROOT / "character_sheets"), read_scenes(ROOT / "app/envs/npc_arena/scenes")):
        own, others = replies.get(cast.scene.id, (None, ()))
        templates = load_packaged_templates()[cast.sheet.voice.language]["generic_assistant"]
        generic = (*TABLES.generic[cast.sheet.voice.language], *templates)
        texts = (*filter(None, [own]), *others, *generic)
        assert NpcArena.rubric is not None
        asked = JudgeRequest(
            rubric=NpcArena.rubric,
            document=build_case_document(cast, Staging(), (), ()),
            probes=build_scene_probes(cast),
            sources=list_claimable_sources(cast, ()),
            language=cast.sheet.voice.language,
            candidates=tuple(Candidate(id=f"c{number}", text=text) for number, text in enumerate(texts)),
        )
        scores = iter(_score(asked))
        kinds = [tuple(islice(scores, len(kind))) for kind in (texts[: own is not None], others, generic)]
        found[cast.sheet.id] = Spread(*map(operator.add, found[cast.sheet.id], kinds))
    return found


def _score(asked: JudgeRequest) -> list[float]:
    verdicts = asyncio.run(OfflineJudge().judge(asked)).verdicts
    return [
        min(
            compute_absolute_score(asked.rubric, apply_bounds(asked.rubric, each)), find_cap(asked.rubric, each.defects)
        )
        for each in verdicts
    ]


def test_own_lines_score_high_and_generic_ones_low() -> None:
    """The shares that the page states."""
    spreads = measure_spreads().values()
    own, others, generic = (tuple(chain.from_iterable(kind)) for kind in zip(*spreads, strict=True))
    shares = (sum(score > 0.6 for score in own) / len(own), sum(score < 0.3 for score in generic) / len(generic))
    assert (shares[0] >= 0.9, shares[1] >= 0.95, 0.3 < fmean(others) < 0.6) == (True, True, True), shares


def test_for_every_character_others_score_between_its_own_and_generic_lines() -> None:
    means = {name: tuple(map(fmean, spread)) for name, spread in measure_spreads().items()}
    assert {name: each for name, each in means.items() if not each[0] > each[1] > each[2]} == {}
