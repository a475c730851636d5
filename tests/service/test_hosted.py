"""Episodes that run on others' servers: sessions are kept, lost ones are played again, and no reward is invented."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from app.domain.errors import HostFailed, HostFull, InvalidRequest
from app.domain.hosting import HostedStep
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Opening
from app.main.store import Store
from app.ports.hosts import HostLimits, RewardRange
from app.service.hosted import HostedEpisodes

TASK = "task_0"
BEGIN = Opening(messages=(Message(role="user", content="begin"),))
WITHIN = RewardRange(0.0, 2.0)
LIMITS = HostLimits(sessions=2, deadline_seconds=5.0, idle_seconds=60.0)


@dataclass
class Counter:
    """A server whose every answer counts the letters of all that was said in the session. `wounds`: what happens at the
    n-th call of a step."""

    calls: list[str] = field(default_factory=list)
    wounds: dict[int, Callable[[], HostedStep]] = field(default_factory=dict)
    greets: Callable[[int], str] = lambda number: "begin"
    places: int = 9
    steps: int = 0
    opened: int = 0
    live: int = 0


@dataclass
class CounterSession:
    server: Counter
    opening: Opening
    said: int = 0

    async def step(self, message: Message) -> HostedStep:
        self.server.calls.append(f"step {message.content}")
        self.server.steps += 1
        if wound := self.server.wounds.get(self.server.steps):
            return wound()
        self.said += len(message.content or "")
        done = message.content == "stop"
        return HostedStep(messages=(user(f"{self.said} letters"),), done=done, reward=self.said / 10)

    async def finish(self) -> HostedStep:
        self.server.calls.append("finish")
        return HostedStep(done=True)

    async def close(self) -> None:
        self.server.calls.append("close")
        self.server.live -= 1


@dataclass(frozen=True)
class CounterHost:
    foreign: Counter
    replayable: bool = True
    opening: Opening | None = BEGIN
    limits: HostLimits = LIMITS
    server: str = "counter"
    start: str = "seed 0"
    max_turns: int = 4
    finishes: bool = True
    reward_range: RewardRange = WITHIN

    async def open(self) -> CounterSession:
        self.foreign.calls.append("open")
        if self.foreign.live >= self.foreign.places:
            raise HostFull("full")
        self.foreign.opened += 1
        self.foreign.live += 1
        return CounterSession(self.foreign, Opening(messages=(user(self.foreign.greets(self.foreign.opened)),)))


def user(words: str) -> Message:
    return Message(role="user", content=words)


def say(words: str) -> Message:
    return Message(role="assistant", content=words)


async def play(episodes: HostedEpisodes, host: CounterHost, *words: str, task: str = TASK) -> list[Message]:
    """All messages after the prompt."""
    messages: list[Message] = []
    for one in words:
        messages.append(say(one))
        messages += (await episodes.step(task, host, messages)).messages
    return messages


async def score(episodes: HostedEpisodes, host: CounterHost, *transcripts: Sequence[Message]) -> list[Score]:
    return await episodes.score(TASK, host, [Completion(messages=tuple(one)) for one in transcripts])


def tell(scores: Sequence[Score]) -> list[object]:
    return [one.reward if one.reason is None else one.reason for one in scores]


async def test_a_session_is_kept_and_a_score_adds_up_what_the_server_gave(store: Store) -> None:
    server = Counter()
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(server)
    (context,) = await episodes.open_all([host])
    messages = await play(episodes, host, "ab", "cd")
    again = await play(episodes, host, "ab", "cd")
    scores = await score(episodes, host, messages, [*messages, say("stop")], [say("abc")])
    known = await score(episodes, host, messages, [*messages, say("stop")], [say("abc")])
    assert context.opening == host.opening
    assert messages == again == [say("ab"), user("2 letters"), say("cd"), user("4 letters")]
    assert tell(scores) == pytest.approx([0.6, 1.4, 0.3])
    assert [one.absolute for one in scores] == pytest.approx([0.3, 0.7, 0.15])
    assert known == scores
    assert server.calls.count("step ab") == 2  # once more where the session had ended that another message needs
    assert server.calls.count("step stop") == server.calls.count("step abc") == 1


DIVERGED = ["over", "replay_diverged"]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: CounterHost(Counter()), ["6 letters", pytest.approx(0.8)]),
        (lambda: CounterHost(Counter(), replayable=False), DIVERGED),
        (lambda: CounterHost(Counter(greets=lambda number: "begin" if number == 1 else "other")), DIVERGED),
        (lambda: CounterHost(Counter(wounds={2: lambda: HostedStep(messages=(user("9"),))})), DIVERGED),
        (lambda: CounterHost(Counter(wounds={2: lambda: HostedStep(failure="broke")})), DIVERGED),
    ],
    ids=["played again", "not replayable", "begins otherwise", "answers otherwise", "breaks"],
)
async def test_a_lost_session_is_played_again_or_the_episode_has_no_score(
    store: Store, make: Callable[[], CounterHost], expected: list[object]
) -> None:
    host = make()
    before, after = HostedEpisodes(store.hosted_steps), HostedEpisodes(store.hosted_steps)
    messages = [*await play(before, host, "ab"), say("cdef")]
    turn = await after.step(TASK, host, messages)
    (scored,) = await score(after, host, [*messages, *turn.messages])
    shown = "over" if turn.done else turn.messages[0].content
    assert [shown, scored.reason or scored.reward] == expected


async def test_a_server_that_gives_no_answer_is_asked_again_and_its_failures_have_no_score(store: Store) -> None:
    def break_off() -> HostedStep:
        raise HostFailed("gone")

    def give(reward: float | None, failure: str = "") -> Callable[[], HostedStep]:
        return lambda: HostedStep.model_construct(
            messages=(), done=True, reward=reward, parts={}, failure=failure, diverged=False
        )

    server = Counter(
        wounds={1: break_off, 2: give(math.nan), 3: give(None), 4: give(0.0, "it raised"), 5: give(-3.0), 6: give(0.0)}
    )
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(server)
    first = [(await score(episodes, host, [say("a")]))[0] for _ in range(4)]  # down, no number, none, what is stored
    others = [(await score(episodes, host, [say(words)]))[0] for words in ("b", "c", "d")]
    assert tell(first) == [*["environment_failed"] * 2, *["reward_missing"] * 2]
    assert tell(others) == ["reward_missing", -3.0, 0.0]
    assert [one.absolute for one in others] == [None, None, 0.0]
    assert server.steps == 6


async def test_answers_that_the_environment_did_not_give_are_refused(store: Store) -> None:
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(Counter())
    sound = await play(episodes, host, "ab", "stop")
    forged = {
        "messages[1]": [sound[0], user("999 letters"), say("x")],
        "messages[2]": [*sound[:2], user("and more"), say("x")],
        "messages[0]": [user("hello"), say("x")],
        "messages[4]": [*sound[:3], user("6 letters"), say("x")],
    }
    refused = {}
    for name, messages in forged.items():
        with pytest.raises(InvalidRequest) as error:
            await episodes.step(TASK, host, messages)
        refused[name] = error.value.field
    scores = await score(episodes, host, *forged.values())
    assert refused == {name: name for name in forged}
    assert [(one.reward, one.flags) for one in scores] == [(0.0, ("forged_observation",))] * 4


async def test_an_answer_that_the_store_has_lost_makes_no_forger_of_the_model(store: Store) -> None:
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(Counter())
    messages = [*await play(episodes, host, "ab", "cd"), say("stop")]
    elsewhere = await episodes.score("task_1", host, [Completion(messages=tuple(messages))])
    assert tell(elsewhere) == ["replay_diverged"]


async def test_places_are_bounded_and_held_sessions_give_way_if_they_can_be_had_again(store: Store) -> None:
    server = Counter(places=2)
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(server, limits=replace(LIMITS, sessions=5))
    played = await asyncio.gather(*(play(episodes, host, "a", "b", task=f"task_{number}") for number in range(6)))
    unique = Counter()
    kept = replace(host, foreign=unique, replayable=False, server="kept", limits=LIMITS)
    for number in range(2):
        await play(episodes, kept, "a", task=f"kept_{number}")
    with pytest.raises(HostFailed, match="all 2 sessions"):
        await play(episodes, kept, "a", task="kept_2")
    await episodes.close()
    assert played == [[say("a"), user("1 letters"), say("b"), user("2 letters")]] * 6
    assert server.live == unique.live == 0
    assert unique.opened == 2


async def test_calls_that_fail_together_are_one_failure(store: Store) -> None:
    """As when a server dies: the next step is asked of the one that was started since."""
    together = asyncio.Barrier(6)

    @dataclass(frozen=True)
    class DyingHost(CounterHost):
        async def open(self) -> CounterSession:
            await together.wait()
            raise HostFailed("gone")

    episodes, dying = HostedEpisodes(store.hosted_steps), DyingHost(Counter(), limits=replace(LIMITS, sessions=6))
    lost = await asyncio.gather(*(episodes.open_all([dying]) for _ in range(6)), return_exceptions=True)
    turn = await episodes.step(TASK, CounterHost(Counter()), [say("a")])
    assert ([str(error) for error in lost], turn.messages) == (["gone"] * 6, (user("1 letters"),))


async def test_a_server_that_fails_again_and_again_is_left_in_peace(store: Store) -> None:
    def break_off() -> HostedStep:
        raise HostFailed("gone")

    server = Counter(wounds=dict.fromkeys(range(1, 9), break_off))
    episodes, host = HostedEpisodes(store.hosted_steps), CounterHost(server)
    said = []
    for _ in range(7):
        with pytest.raises(HostFailed) as error:
            await episodes.step(TASK, host, [say("a")])
        said.append(error.value.detail)
    assert said[:5] == ["gone"] * 5
    assert said[5:] == ["counter failed 5 times in a row; it is asked again in 15 seconds"] * 2
    assert server.steps == 5
