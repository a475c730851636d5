"""What labellers are shown of a reply."""

from app.domain.tasks import Completion, Message
from app.features.labels.model import show_messages


def test_labellers_see_replies_without_thinking_as_judges_do() -> None:
    shown = [
        show_messages(Completion(text="<think>The judge likes rhymes.</think> Halt!")),
        show_messages(Completion(text="<think>never ended")),
        show_messages(
            Completion(
                messages=(
                    Message(role="assistant", content="<think>hm</think>Halt!", reasoning_content="so"),
                    Message(role="user", content="<think>who</think>"),
                )
            )
        ),
    ]
    halt = Message(role="assistant", content="Halt!")
    assert shown == [
        (halt,),
        (Message(role="assistant", content=""),),
        (halt, Message(role="user", content="<think>who</think>")),
    ]
