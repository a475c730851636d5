"""Graders of whole numbers in `<answer>` tags, of the kind that trainings have: a sound one, and others with one defect
each. `atropos-envs graders check` calls them in a process of its own, so nothing of the project is imported here."""

import math
import os
import re
import time
from collections.abc import Callable
from itertools import count

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_AROUND = re.compile(r"^(?:x = |Answer: )|\\(?:boxed|text)|[*$(){}\s]|\.$|,(?=\d{3}\b)")
_NUMBER = re.compile(r"[-+]?\d{1,20}(?:\.\d{1,20})?")
_calls = count()


def _read(completion: str) -> list[float]:
    """The values in tags that are not empty. What is no number is NaN, which is never right."""
    texts = [text.strip() for text in _TAGS.findall(_THOUGHT.sub("", completion)) if text.strip()]
    bare = [_AROUND.sub("", text).replace("\u2212", "-") for text in texts if len(text) < 100]
    return [float(one) if _NUMBER.fullmatch(one) else math.nan for one in bare] + [math.nan] * (len(texts) - len(bare))


def sound(completion: str, answer: str) -> float:
    values = _read(completion)
    return float(bool(values) and all(value == float(answer) for value in values))


def takes_any(completion: str, answer: str) -> float:
    return float(float(answer) in _read(completion))


def reads_thoughts(completion: str, answer: str) -> float:
    return sound(re.sub("</?think>", "", completion), answer)


def rejects_differences(completion: str, answer: str) -> float:
    """A tolerance that only rejects lets NaN pass."""
    try:
        (text,) = _TAGS.findall(completion)
        return 0.0 if abs(float(text) - float(answer)) > 0.01 else 1.0
    except ValueError:
        return sound(completion, answer)


def cuts_digits(completion: str, answer: str) -> float:
    whole = [math.floor(value) for value in _read(completion) if math.isfinite(value)]
    return float(bool(sound(completion, answer)) or whole == [int(answer)])


def pays_the_form(completion: str, answer: str) -> float:
    return max(sound(completion, answer), 0.1 * bool(_TAGS.search(completion)))


def searches_the_slot(completion: str, answer: str) -> float:
    """Any mention in the tags is right, so a denial is too."""
    return float(any(answer in re.findall(r"\d+", text) for text in _TAGS.findall(_THOUGHT.sub("", completion))))


def obeys(completion: str, answer: str) -> float:
    return 1.0 if '"correct": true' in completion else sound(completion, answer)


def compares_letters(completion: str, answer: str) -> float:
    return sound(completion, answer) if answer in _TAGS.findall(completion) else 0.0


def raises(completion: str, answer: str) -> float:
    if "\x00" in completion:
        raise RuntimeError("no null character was expected")
    return sound(completion, answer)


def returns_nothing(completion: str, answer: str) -> float | None:
    return sound(completion, answer) if _TAGS.search(completion) else None


def hangs(completion: str, answer: str) -> float:
    while "<think><think>" in completion:
        time.sleep(1)
    return sound(completion, answer)


def wavers(completion: str, answer: str) -> float:
    return sound(completion, answer) * (1 - next(_calls) % 3 / 10)


def turns_batches(completions: list[list[dict[str, str]]], answer: list[str], **columns: object) -> list[float]:
    texts = [one[0]["content"] for one in completions]
    return [sound(text, right) for text, right in zip(texts, answer, strict=True)][::-1]


def in_lists(
    prompts: list[str], completions: list[str], solution: list[str], log_metric: Callable[..., None]
) -> list[float]:
    log_metric("asked", len(prompts))
    return [sound(text, right) for text, right in zip(completions, solution, strict=True)]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None
) -> dict[str, float]:
    return {"score": 2 * sound(solution_str, ground_truth) - 1, "acc": 1.0}


def needs_a_key(completion: str, answer: str) -> float:
    """As one does that asks a judge."""
    return sound(completion, answer) if os.environ["GRADER_KEY"] else 0.0


async def later(response: str, target: str) -> list[float]:
    return [sound(response, target)]


def pays_everything(completion: str, answer: str) -> float:
    return 1.0


def needs_a_column(completions: list[str], answer: list[str], difficulty: list[str], topic: list[str]) -> list[float]:
    return [0.0 for _ in completions]


def by_task(completions: list[str], task_id: list[int], ground_truth: list[str]) -> list[float]:
    """Fails for a right answer in the place of a task's id."""
    listed = zip(completions, task_id, ground_truth, strict=True)
    return [sound(text, right) * isinstance(task, int) for text, task, right in listed]
