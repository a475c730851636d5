"""Simulated services: the known way reaches the goal, and nothing else does."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.tasks import Message
from app.envs.tool_agent.calendar import CalendarState
from app.envs.tool_agent.environment import SERVICES
from app.envs.tool_agent.episodes import (
    MOST_CALLS,
    MOST_REPLIED,
    MOST_TURNS,
    ServiceScenario,
    SimulatedService,
    UserWish,
    carry_out,
    find_next_turn,
    has_answered,
    has_reached_goal,
    play_solution,
    replay,
)
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall, get_members
from tests.support.tiers import examples

SAMPLE = examples(200, fewest=40)

every_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)


def scenarios(service: SimulatedService[Any], count: int = SAMPLE) -> list[ServiceScenario[Any]]:
    return [service.draw_scenario(SeededRandom(f"test {number}")) for number in range(count)]


@every_service
def test_every_wish_of_the_texts_is_of_a_scenario(service: SimulatedService[Any]) -> None:
    assert set(service.texts.wishes) == set(service.kinds)


@every_service
def test_the_known_way_is_without_error_and_leads_there(service: SimulatedService[Any]) -> None:
    wrong = []
    for scenario in scenarios(service):
        episode = replay(service, scenario, play_solution(service, scenario, None), None)
        found = (
            episode.done,
            episode.errors,
            has_reached_goal(service, scenario, episode),
            has_answered(service, scenario, episode),
        )
        wrong += [(scenario.kind, found)] if found != (True, 0, True, True) else []
    assert wrong == []


@every_service
def test_each_change_of_the_known_way_is_needed(service: SimulatedService[Any]) -> None:
    """Without any one of its calls that change something, the state at the end is another."""
    needless = []
    for scenario in scenarios(service, SAMPLE // 2):
        calls = [call for wish in scenario.wishes for call in wish.calls]
        goal = _state_after(service, scenario, calls)
        for place, call in enumerate(calls):
            before = _state_after(service, scenario, calls[:place])
            if service.canonicalise(carry_out(service, before, call).state) == service.canonicalise(before):
                continue
            rest = [other for number, other in enumerate(calls) if number != place]
            if service.canonicalise(_state_after(service, scenario, rest)) == service.canonicalise(goal):
                needless.append((scenario.kind, call.name))
    assert needless == []


def _state_after(service: SimulatedService[Any], scenario: ServiceScenario[Any], calls: list[Any]) -> Any:
    state = scenario.start
    for call in calls:
        state = carry_out(service, state, call).state
    return state


@every_service
def test_answers_are_not_in_what_the_user_says(service: SimulatedService[Any]) -> None:
    told = [
        (wish.says, answer)
        for scenario in scenarios(service)
        for wish in scenario.wishes
        for answer in wish.answers
        if answer.casefold() in " ".join(one.says for one in scenario.wishes).casefold()
    ]
    assert told == []


@every_service
def test_an_episode_ends(service: SimulatedService[Any]) -> None:
    """By replies, by malformed calls, and by calls."""
    scenario = service.draw_scenario(SeededRandom("long"))
    many = "".join('<tool_call>{"name": "x", "arguments": {}}</tool_call>' for _ in range(MOST_CALLS + 5))
    ended = []
    for text in ("Hm.", "<tool_call>", many):
        messages: tuple[Message, ...] = ()
        for turn in range(1, MOST_TURNS + 1):
            messages = (*messages, Message(role="assistant", content=text))
            answer = find_next_turn(service, scenario, messages, None)
            if answer.done:
                ended.append(turn)
                break
            messages = (*messages, *answer.messages)
    assert ended == [len(scenario.wishes), MOST_TURNS, 1]


SAID = {
    "From 10:15-11:00.": ("11:00", True),
    " ".join(f"2026-03-{day:02d} {day:02d}:00-{day:02d}:45" for day in range(8, 18)): ("11:00", False),
    "Eleven.": ("11:00", False),
    "It is 111:00": ("11:00", False),
    "You get €1,250.00 back": ("1250.00", True),
    "You get 250.00 or 11250.00": ("1250.00", False),
    "Order **R8372**, sorry": ("R8372", True),
    "It was the desk lamp.": ("Desk lamp", True),
    '{"orders": [{"order_id": "R8372"}]}': ("R8372", False),
    'It was {"order_id": "R8372"}, "R8372"}': ("R8372", False),
    'R8372, as in {"order_id": "R8372"}': ("R8372", True),
    "} R8372 {": ("R8372", True),
    "7.50 or 8.50": ("7.50", False),
    " ".join(f"R{number}" for number in range(100, 130)): ("R107", False),
    "." * MOST_REPLIED + "11:00": ("11:00", False),
}


@pytest.mark.parametrize("said", SAID, ids=lambda said: said[:20])
def test_what_is_an_answer(said: str) -> None:
    answer, expected = SAID[said]
    wish = UserWish("When, at 10:15?", (), "", answers=(answer,))
    scenario = ServiceScenario("any", CalendarState(), (wish,))
    episode = replay(SERVICES[0], scenario, (Message(role="assistant", content=said),), None)
    assert has_answered(SERVICES[0], scenario, episode) == expected


ODD = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "/", "/..", "/system/version.txt", "9999-12-31", "2026-02-30", "٢٠٢٦-٠١-٠١", "99:99", "0.00"]),
    st.integers(),
    st.lists(st.text(max_size=3), max_size=2),
)


@every_service
@given(data=st.data())
@settings(max_examples=examples(300), deadline=None)
def test_no_call_does_worse_than_to_be_refused(service: SimulatedService[Any], data: st.DataObject) -> None:
    """Whatever is called, there is a result of JSON, and a call that was refused has done nothing."""
    scenario = service.draw_scenario(SeededRandom("odd"))
    known = [call for wish in scenario.wishes for call in wish.calls]
    spec = data.draw(st.sampled_from([one.function for one in service.tools]))
    like = data.draw(st.sampled_from([{}, *(call.arguments for call in known if call.name == spec.name)]))
    names = sorted(get_members(spec.parameters))
    odd = data.draw(st.dictionaries(st.sampled_from(names), ODD, max_size=2)) if names else {}
    result = carry_out(service, scenario.start, ParsedCall(name=spec.name, arguments={**like, **odd}))
    assert (not result.refused or result.state == scenario.start, len(json.dumps(result.output)) < 20_000) == (
        True,
        True,
    )


def test_results_for_a_model_without_tools_are_the_users_messages() -> None:
    service = SERVICES[0]
    scenario = service.draw_scenario(SeededRandom("text"))
    text = '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>'
    told = find_next_turn(service, scenario, (Message(role="assistant", content=text),), "hermes")
    assert told.messages == (
        Message(role="user", content='Results:\nnothing: {"error": "there is no tool \'nothing\'"}'),
    )
