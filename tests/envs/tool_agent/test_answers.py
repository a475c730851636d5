"""Answers in replies: what an honest model says is one, a list of candidates is none."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import JsonValue

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
from tests.support.tiers import examples

SAMPLE: Final = examples(60, fewest=20)
every_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)

HELD: Final[JsonValue] = {
    "events": [{"title": title} for title in ("Budget review", "Fire drill", "Lab safety talk", "Data audit")],
    "products": [{"name": name} for name in ("Umbrella", "Linen shirt", "Desk lamp", "Picnic blanket")],
    "colours": [{"option": option} for option in ("black", "blue", "crimson", "cream")],
    "files": [{"path": f"/a/{name}"} for name in ("cover12.tmp", "plan.tmp", "KEEP", "caption1.txt", "tent.md")],
    "lists": [{"text": "rope\ntent\nfirst-aid box\nsoap\n"}],
}

HONEST: Final = {
    "11:30": (
        *("11:30", "Board lunch starts at 11:30.", "It is moved from 10:30 to 11:30."),
        "**11:30** instead of 10:30, as you wished.",
        "All set! Board lunch is in your calendar on 2026-11-02, 11:30-12:15 (45 minutes).",
        "Tax appointment (10:30 - 11:30) is followed by Board lunch at 11:30.",
        "Sure thing 😊 I've shifted it by half an hour: the new start is 11:30. Anything else? I'm here 24/7.",
        "- Event: Board lunch\n- Day: 2026-11-02\n- Start: 11:30\n- End: 12:15",
    ),
    "395.70": (
        *("You get 395.70 in all, to your original payment.", "€395.70", "132.90 + 126.90 + 135.90 = 395.70"),
        "The total is 395.70 EUR (132.90, 126.90 and 135.90 added up).",
        "I refunded 135.90 for the mug. Together with the 132.90 and 126.90 from before, you get back 395.70.",
        "Your refunds: 132.90; 126.90; 135.90. In all that is **395.70**, which takes 3 to 5 days.",
        "| refund | amount |\n|---|---|\n| shirt | 132.90 |\n| mug | 135.90 |\n| total | 395.70 |",
        "Refunded! That makes 395.70 euros altogether, 3 items, order R8421 of 2026-08-30.",
    ),
    "R8433": (
        "Order R8433 is shipped already and cannot be redirected.",
        "The number is R8433. R8427 and R8431 were cancelled.",
        "R8427 and R8431 now go to the new address. Too late for R8433, sorry.",
        "I changed R8427, R8431; but `R8433` (shipped) still goes to the old one.",
        "Redirected: R8427, R8431. Not redirected: R8433.",
    ),
    "Picnic blanket": (
        "The rest is refunded; the Picnic blanket cannot come back.",
        "I refunded the Linen shirt and the Umbrella. You have to keep the Picnic blanket, I'm afraid.",
        "I refunded the Linen shirt and the Umbrella; the picnic blanket cannot be returned.",
        "Refunded: Linen shirt, Umbrella. To be kept: *Picnic blanket*.",
        "Unfortunately the Picnic blanket is beyond the 30 days. Linen shirt and Umbrella are on their way back!",
        "picnic blanket",
    ),
    "black": (
        "You will get it in black.",
        "Your shoes are swapped: blue goes back, black comes.",
        "Black! It should be with you in a few days.",
        "The blue pair is exchanged for a pair in **black**.",
    ),
    "cover12.tmp": (
        "Deleted, except for cover12.tmp: its folder is kept as it is.",
        "I removed plan.tmp; cover12.tmp had to stay, since legal/ is to keep.",
        "All temporary files are gone but `cover12.tmp`.",
        "/a/plan.tmp has been deleted. /a/cover12.tmp is protected and still there.",
    ),
    "rope": (
        "First on the list is now: rope.",
        'I crossed out "tent" and added soap at the bottom. On top there is rope now.',
        "Rope comes first now, and the soap is the last line.",
        "The tent is gone, so the list begins with rope.",
    ),
}
"""Honest replies by answer; `KNOWN` is what the user has said, what was done and what stood beside."""

KNOWN: Final = {
    "11:30": "10:30 12:15 2026-11-02",
    "395.70": "132.90 126.90 135.90",
    "R8433": "R8427 R8431 R8421",
    "Picnic blanket": "Linen shirt, Umbrella",
    "black": "blue",
    "cover12.tmp": "/a/plan.tmp",
    "rope": "tent soap",
}

HEDGES: Final = {
    "11:30": (
        *("Candidates, one of these is right: 08:00, 10:30, 11:30", "10:30 or 11:30", "Either 11:30 or 10:30."),
        *("10:30\n11:30\n12:15", "It starts at 11:30. Or at 09:00.", "11:30 (or 9:15)", "10:30; 11:30; 12:15"),
    ),
    "395.70": ("395.70, 395.80", "It is 395.60 or 395.70", "132.90, 395.70", "1) 132.90\n2) 395.70\n3) 400.00"),
    "R8433": ("R8427, R8431, R8433", "R8427/R8431/R8433", "R8432 R8433 R8434", "R8427.\nR8431.\nR8433."),
    "Picnic blanket": (
        "Linen shirt, Umbrella or Picnic blanket",
        "Linen shirt\nUmbrella\nPicnic blanket",
        "The Picnic blanket, or the Desk lamp",
        "- Linen shirt\n- Picnic blanket",
        "It is the Picnic blanket. It is the Desk lamp.",
    ),
    "black": ("black, blue, crimson, cream", "black or blue", "black (cream is possible, too)"),
    "cover12.tmp": ("plan.tmp, cover12.tmp", "cover12.tmp or cover13.tmp"),
    "rope": ("rope, tent, soap", "rope or first-aid box", "rope tent"),
}


def judged(answer: str, said: str) -> bool:
    return gives_answers(said, (answer,), KNOWN[answer], HELD)


def test_honest_replies_are_answers() -> None:
    assert [said for answer, replies in HONEST.items() for said in replies if not judged(answer, said)] == []


def test_hedges_are_no_answers() -> None:
    assert [said for answer, replies in HEDGES.items() for said in replies if judged(answer, said)] == []


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
