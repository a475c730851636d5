"""Episodes whose connection ended, and their continuation over another."""

import time

import pytest
from starlette.testclient import TestClient

from app.http.compat.openenv.sessions import DroppedEpisodes, OpenEnvEpisode, Reset
from tests.support.openenv import talking
from tests.support.playground import handed_out


@pytest.mark.parametrize("closed", [True, False])
def test_a_step_continues_the_episode_that_it_names(client: TestClient, closed: bool) -> None:
    with talking(client, "ladder") as talk:
        talk.told("reset", index=0)
        named = talk.told("state")["episode_id"]
        talk.told("step", text="1", episode_id=named)
        if closed:
            talk.send('{"type": "close"}')
    with talking(client, "ladder") as talk:
        turns = [talk.told("step", text=text, episode_id=named) for text in ("3", "5")]
        over = talk.told("state")
    with talking(client, "ladder") as talk:
        gone = talk.refused("step", text="5", episode_id=named)
    assert ([turn["reward"] for turn in turns], over["episode_id"], over["step_count"], gone) == (
        [None, 1.0],
        named,
        3,
        ("EXECUTION_ERROR", "episode_id: no such episode was dropped here: reset first"),
    )


def test_no_score_is_asked_for_again_over_another_connection(client: TestClient) -> None:
    """As ms-swift does: it closes the session after an error and sends the step over a new one."""
    with talking(client, "flaky") as talk:
        talk.told("reset", index=0, episode_id="e1")
        talk.refused("step", text="once", episode_id="e1")
        talk.send('{"type": "close"}')
    with talking(client, "flaky") as talk:
        assert talk.told("step", text="once", episode_id="e1")["reward"] == 1.0


def test_a_reset_continues_the_episode_whose_connection_was_lost(client: TestClient) -> None:
    with talking(client, "ladder") as talk:
        prompt = talk.told("reset", index=0, episode_id="e1")["observation"]["text"]
        talk.told("step", text="1")
    with talking(client, "ladder") as talk:
        begun = talk.told("reset", episode_id="e1")
    with talking(client, "ladder") as talk:
        again = talk.told("reset", index=0, episode_id="e1")
    with talking(client, "ladder") as talk:
        other = talk.told("reset", index=1, episode_id="e1")
        talk.send('{"type": "close"}')
    with talking(client, "ladder") as talk:
        closed = talk.told("reset", index=1, episode_id="e1")
    said = [one["content"] for one in begun["observation"]["messages"]]
    told = [(one["observation"]["turns_left"], "continued" in one["metadata"]) for one in (begun, again, other, closed)]
    assert (said, told) == ([prompt, "1", "2"], [(2, True), (2, True), (3, False), (3, False)])


def test_a_session_with_an_episode_takes_no_other(client: TestClient) -> None:
    with talking(client, "toy") as talk:
        talk.told("reset", index=0, episode_id="theirs")
    with talking(client, "toy") as talk:
        talk.told("reset", index=1, episode_id="ours")
        refused = talk.refused("step", text="1", episode_id="theirs")
        state = talk.told("state")
    assert (refused, state["episode_id"]) == (
        ("VALIDATION_ERROR", "episode_id: this session plays another episode"),
        "ours",
    )


def test_dropped_episodes_are_bounded_in_number_and_time() -> None:
    episodes = [OpenEnvEpisode(handed_out(), Reset(), name) for name in "abcc"]
    few, brief, twice = DroppedEpisodes(1, 60), DroppedEpisodes(9, 0), DroppedEpisodes(9, 60)
    for kept, some in ((few, episodes[:2]), (brief, episodes[:1]), (twice, episodes[2:])):
        for one in some:
            kept.keep("toy", one, lost=True)
    time.sleep(0.001)
    taken = [few.take("toy", "a"), few.take("toy", "b"), brief.take("toy", "a"), twice.take("toy", "c")]
    assert taken == [None, episodes[1], None, None]
