"""Names that mean one model, and names that do not."""

import pytest

from app.domain.values import is_same_model


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("gpt-4o", "GPT-4o", True),
        ("gpt-4o", "openai/gpt-4o", True),
        ("/models/Qwen2.5_7B-Instruct/", "qwen2.5-7b-instruct", True),
        ("C:\\models\\llama3", "llama3:latest", True),
        ("ｌｌａｍａ３", "llama3", True),
        (" llama3 ", "llama3", True),
        ("llama3:8b", "llama3:70b", False),
        ("gpt-4o-2024-08-06", "gpt-4o", False),
        ("gpt-4o-mini", "gpt-4o", False),
        ("org/one", "org/other", False),
    ],
)
def test_names_are_compared_without_who_serves_and_how_it_is_written(one: str, other: str, same: bool) -> None:
    assert (is_same_model(one, other), is_same_model(other, one)) == (same, same)
