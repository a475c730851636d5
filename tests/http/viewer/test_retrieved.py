"""What was retrieved into a prompt, before any HTML."""

from datetime import UTC, datetime

from app.domain.tasks import Context, Passage, Withheld
from app.http.viewer.group_pages import PassageView, RetrievedView, WithheldView, build_retrieved
from app.toolkit.texts import cut_excerpt

NINE = datetime(412, 4, 3, 9, 15, tzinfo=UTC)


def test_passages_keep_their_order_and_what_is_held_back_its_reason() -> None:
    context = Context(
        passages=(
            Passage(id="toll", text="The levy was doubled.", source="lorebook/coast", kind="lore"),
            Passage(id="rope", text="The rope\u202e broke.", source="events", time=NINE),
        ),
        withheld=(
            Withheld(
                id="bridge", reason="not_visible", text="A bridge is planned.", leak_terms=("toll bridge", "b\x00")
            ),
            Withheld(id="x", reason="their_own_reason"),
        ),
        as_of=NINE,
    )
    assert build_retrieved(context) == RetrievedView(
        as_of="0412-04-03 09:15:00",
        told=(
            PassageView("toll", "lorebook/coast", "", cut_excerpt("The levy was doubled.")),
            PassageView("rope", "events", "0412-04-03 09:15:00", cut_excerpt("The rope\u202e broke.")),
        ),
        held=(
            WithheldView(
                "bridge", "not visible to the character", cut_excerpt("A bridge is planned."), "toll bridge, b⟨U+0000⟩"
            ),
            WithheldView("x", "their own reason", None, ""),
        ),
        failure="",
    )


def test_a_task_that_asked_for_nothing_shows_nothing() -> None:
    assert (build_retrieved(None), build_retrieved(Context(failure="down"))) == (
        None,
        RetrievedView("", (), (), "down"),
    )
