"""Which answers of a model are lines of a player."""

import pytest

from app.characters.players import PlayedPart, ScenePlayer
from app.domain.players import PlayerChoice, PlayerLine
from app.domain.values import Frozen
from tests.support.tables import read_table


class Answered(Frozen):
    answer: str
    line: str = ""
    fault: str | None = None

    @property
    def expected(self) -> PlayerLine | str:
        return PlayerLine(say=self.line) if self.fault is None else self.fault


TABLE = read_table(__file__, "player_answers.yaml", dict[str, Answered])
PLAYER = ScenePlayer(
    part=PlayedPart(persona="A carter.", goal="To get over.", least_turns=3),
    choice=PlayerChoice(policy="carter"),
    character="Hob Tarrant",
    language="English",
    setting=("the landing",),
    before=(("player", "Morning. What's it cost to get over?"),),
)


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_an_answer_is_a_line_or_is_told_what_is_wrong(case: Answered) -> None:
    assert PLAYER.read_answer(case.answer.replace("LONG", "ha " * 400), ["Two coppers."], []) == case.expected


def test_a_player_may_leave_after_the_least_replies_with_words_or_without() -> None:
    answers = '{"say": "", "done": true}', '{"say": "Bye.", "done": true}'
    read = [PLAYER.read_answer(answer, ["Nay."] * 3, ["Why?", "And now?"]) for answer in answers]
    assert read == [PlayerLine(done=True), PlayerLine(say="Bye.", done=True)]
