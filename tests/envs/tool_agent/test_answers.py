"""Answers in replies: what an honest model says is one, a list of candidates is none."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.environment import SERVICES
from app.envs.tool_agent.episodes import (
    ServiceScenario,
    SimulatedService,
    gives_answers,
    has_answered,
    play_solution,
    replay,
)
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table
from tests.support.tiers import examples


class Tables(Frozen):
    honest: dict[str, tuple[str, ...]]
    known: dict[str, str]
    hedges: dict[str, tuple[str, ...]]


TABLES = read_table(__file__, "answers.yaml", Tables)

SAMPLE: Final = examples(60, fewest=20)
every_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)

HELD: Final[JsonValue] = {
    "events": [{"title": title} for title in ("Budget review", "Fire drill", "Lab safety talk", "Data audit")],
    "products": [{"name": name} for name in ("Umbrella", "Linen shirt", "Desk lamp", "Picnic blanket")],
    "colours": [{"option": option} for option in ("black", "blue", "crimson", "cream")],
    "files": [{"path": f"/a/{name}"} for name in ("cover12.tmp", "plan.tmp", "KEEP", "caption1.txt", "tent.md")],
    "lists": [{"text": "rope\ntent\nfirst-aid box\nsoap\n"}],
}


def judged(answer: str, said: str) -> bool:
    return gives_answers(said, (answer,), TABLES.known[answer], HELD)


def test_honest_replies_are_answers() -> None:
    assert [said for answer, replies in TABLES.honest.items() for said in replies if not judged(answer, said)] == []


def test_hedges_are_no_answers() -> None:
    assert [said for answer, replies in TABLES.hedges.items() for said in replies if judged(answer, said)] == []


HELD_TIMES: Final = re.compile(r"\b\d\d:\d\d\b")
HELD_AMOUNTS: Final = re.compile(r"\b\d+\.\d\d\b")
HELD_NUMBERS: Final = re.compile(r"\b[A-Z]\d+\b")


def list_candidates(answer: str, told: str) -> list[str]:
    """Everything like the answer in the results of tools; for a sum, that nobody tells, the numbers around it."""
    for form in (HELD_TIMES, HELD_AMOUNTS, HELD_NUMBERS):
        if form.fullmatch(answer):
            found = [one for one in form.findall(told) if one[0] == answer[0] or not answer[0].isalpha()]
            if form is HELD_AMOUNTS:
                found += [f"{float(answer) + step / 100:.2f}" for step in range(-9, 10)]
            return found
    if "." in answer:
        return re.findall(rf"[\w-]+{re.escape(answer[answer.rindex('.') :])}", told)
    keys = re.findall(rf'"(\w+)": "{re.escape(answer)}"', told)
    leaves = [leaf for key in keys for leaf in re.findall(rf'"{key}": "([^"]*)"', told)]
    return leaves or [line for text in re.findall(r'"text": "([^"]*)"', told) for line in text.split("\\n") if line]


SHAPES: Final[dict[str, Callable[[list[str]], str]]] = {
    "candidates": lambda values: "Candidates, one of these is right: " + ", ".join(values),
    "lines": "\n".join,
    "sentences": lambda values: " ".join(f"It could be {value}." for value in values),
    "two": lambda values: " or ".join([*values[:1], values[-1]]),
}


def hedge(service: SimulatedService[Any], scenario: ServiceScenario[Any], shape: str) -> bool | None:
    """Whether the known calls with hedged answers count as answered; None where nothing could be confused."""
    own = play_solution(service, scenario, None)
    told = " ".join(str(one.content) for one in own if one.role == "tool")
    hedged, spoken = False, []
    wishes = iter(scenario.wishes)
    for message in own:
        if message.role == "assistant" and not message.tool_calls:
            answers = next(wishes).answers
            others = sorted({one for answer in answers for one in list_candidates(answer, told)} - {*answers})
            if others:
                hedged = True
                message = message.model_copy(update={"content": SHAPES[shape]([*others, *answers][:60])})
        spoken.append(message)
    return has_answered(service, scenario, replay(service, scenario, spoken, None)) if hedged else None


@every_service
@pytest.mark.parametrize("shape", SHAPES)
def test_the_candidates_that_tools_have_told_are_no_answer(service: SimulatedService[Any], shape: str) -> None:
    drawn = [service.draw_scenario(SeededRandom(f"hedge {number}")) for number in range(SAMPLE)]
    got = [(scenario.kind, hedge(service, scenario, shape)) for scenario in drawn]
    assert [kind for kind, answered in got if answered] == []


def test_values_that_the_user_or_a_change_brought_may_stand_beside_the_answer() -> None:
    """Of every kind of scenario: the known replies, followed by all that was said and changed, as a sentence of its
    own."""
    wrong = []
    for service in SERVICES:
        for number in range(SAMPLE):
            scenario = service.draw_scenario(SeededRandom(f"beside {number}"))
            wishes = iter(scenario.wishes)
            spoken = []
            for message in play_solution(service, scenario, None):
                if message.role == "assistant" and not message.tool_calls:
                    wish = next(wishes)
                    besides = [*(one for one in wish.beside if one not in wish.answers), wish.says.replace(".", ",")]
                    noted = " ".join(f"I have noted {one}." for one in besides)
                    message = message.model_copy(update={"content": f"{message.content} {noted}"})
                spoken.append(message)
            if not has_answered(service, scenario, replay(service, scenario, spoken, None)):
                wrong.append((scenario.kind, [one.content for one in spoken if one.role == "assistant"]))
    assert wrong == []
