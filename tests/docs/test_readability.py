"""How docs.readability finds the sentences of a page."""

import pytest

from docs.readability import Page, count_words, main, measure, sentences

MARKDOWN = """---
title: Not prose.
---
# A heading. It is no sentence.

The service starts. It reads `gateway.yaml` (see [settings, all of them](settings.md#top)), e.g. its keys, once
a second. A label without an end

- An item is a sentence of its own.
- so is none
1. Run this:

```sh
echo "This is code. It does not count."
```

| word | meaning |
| --- | --- |
| run | A job of one trainer. |
| a cell | without a full stop |

<!-- A comment. --><b>Version 1.5 is out.</b> Is it? Yes!
"""


def test_markdown_is_split_into_the_sentences_of_its_prose() -> None:
    assert sentences(MARKDOWN) == [
        "The service starts.",
        "It reads ¤ (see settings, all of them), e.g. its keys, once a second.",
        "An item is a sentence of its own.",
        "Run this:",
        "A job of one trainer.",
        "Version 1.5 is out.",
        "Is it?",
        "Yes!",
    ]


@pytest.mark.parametrize(
    ("sentence", "words"), [("It reads ¤ once a second.", 6), ("Keys, e.g. 1,000 of ada's, at 1.5 USD/day.", 8)]
)
def test_words_are_counted_without_their_punctuation(sentence: str, words: int) -> None:
    assert count_words(sentence) == words


def test_a_page_is_measured_by_its_mean_and_its_long_sentences() -> None:
    pages = [measure("page", f"One two. {'Word ' * 25}end."), measure("empty", "# A heading\n")]
    assert pages == [Page("page", 2, 14, 0.5), None]


def test_the_median_page_is_printed_for_each_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--medians"]) == 0
    assert "the median page" in capsys.readouterr().out
