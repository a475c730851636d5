"""Rows of LiveCodeBench (code generation): a problem with its date, public and private tests.

    question_content, question_title    the problem
    starter_code, metadata              where a function is asked for: how it begins, and its name (`func_name`)
    public_test_cases                   JSON list of `input`, `output` and `testtype`
    private_test_cases                  the same, or that text pickled, compressed and encoded

No pickle is loaded: of its instructions only those are read that hold one text.
"""

import base64
import json
import pickletools
import re
import zlib
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, model_validator

from app.domain.programs import ProgramLimits
from app.domain.sources import CHECKED, leave_out
from app.envs.code_exec.tasks.competition_rows import (
    IMPORTS,
    MEMORY_MB,
    MOST_CHARACTERS,
    build_call,
    build_run,
    choose_prompt,
    count_characters,
    name_definition,
    require_hidden,
)
from app.envs.code_exec.tasks.mbpp_rows import Text
from app.envs.code_exec.tasks.row_cases import SEVERAL_ANSWERS, RowCase, RowTests, require_task
from app.envs.code_exec.tasks.row_programs import TABLE_SECONDS, build_call_limits, build_run_limits

SECONDS: Final = 6.0
"""Of one test, as published."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of private tests once they are decompressed."""
ERRATA: Final = frozenset(
    {
        "abc311_c",
        "abc326_d",
        "abc327_b",
        "abc333_e",
        "abc337_e",
        "abc343_e",
        "abc350_c",
        "abc355_e",
        "abc362_c",
        "arc189_a",
        "find-words-containing-character",
        "find-the-peaks",
        "generate-binary-strings-without-adjacent-zeros",
    }
)
"""Problems that are known to be graded wrongly, by id or title."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class LiveCodeBenchRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question_content: str
    public_test_cases: str
    private_test_cases: Text = ""
    question_title: Text = ""
    question_id: Text = ""
    platform: Text = ""
    contest_date: Text = ""
    difficulty: Text = ""
    starter_code: Text = ""
    details: Annotated[Text, Field(validation_alias="metadata")] = ""

    @model_validator(mode="after")
    def _require_complete(self, info: ValidationInfo) -> Self:
        if not self.question_content.strip():
            raise ValueError("question_content is empty")
        if {self.question_id, "-".join(self.question_title.lower().split())} & ERRATA:
            raise leave_out("it is one of the problems that are known to be graded wrongly")
        if info.context == CHECKED:
            return self
        cases = self.build_tests().cases
        require_task(cases)
        require_hidden(cases, self.question_content)
        return self

    @property
    def function(self) -> str:
        """Empty for a program that reads standard input."""
        try:
            name = json.loads(self.details or "{}").get("func_name") or ""
        except (ValueError, AttributeError):
            raise leave_out("its metadata is no JSON") from None
        if name and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise leave_out("it asks for a function without a name")
        return str(name)

    @property
    def metadata(self) -> dict[str, JsonValue]:
        told = {
            "question_id": self.question_id,
            "platform": self.platform,
            "contest_date": self.contest_date[:10],
            "difficulty": self.difficulty,
        }
        return {name: value for name, value in told.items() if value}

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        """The name of its prompt, and what stands in it."""
        question = f"{self.question_title}\n\n{self.question_content}".strip()
        return choose_prompt(question, self.starter_code, self.function)

    @property
    def defines(self) -> str:
        """What the answer is to define."""
        return name_definition(self.starter_code, self.function)

    @property
    def limits(self) -> ProgramLimits:
        if self.function:
            return build_call_limits(TABLE_SECONDS, MEMORY_MB)
        return build_run_limits(SECONDS, MEMORY_MB)

    @property
    def gold(self) -> str | None:
        """The data set has none."""
        return None

    def build_tests(self) -> RowTests:
        name = self.function
        if not name and SEVERAL_ANSWERS.search(self.question_content):
            raise leave_out("it accepts several answers, and its tests only one")
        tests = [*_read_tests(self.public_test_cases), *_read_tests(_unpack(self.private_test_cases))]
        cases = [_build_case(name, one) for one in tests]
        return RowTests(
            function=name,
            cases=[case for case in cases if count_characters(case) <= MOST_CHARACTERS],
            before=IMPORTS if name else "",
        )


def _read_tests(text: str) -> list[Any]:
    try:
        tests = json.loads(text)
    except (ValueError, RecursionError):
        raise leave_out("its tests are no JSON that can be read") from None
    if not isinstance(tests, list):
        raise leave_out("its tests are no list")
    return tests


def _build_case(name: str, test: Any) -> RowCase:
    try:
        given, expected = str(test["input"]), str(test["output"])
        lines = [json.loads(line) for line in given.split("\n") if name and line.strip()]
        result = json.loads(expected) if name else expected
    except (KeyError, TypeError, ValueError, RecursionError):
        raise leave_out("a test cannot be read") from None
    return build_call(name, lines, result) if name else build_run(given, expected)


def _unpack(text: str) -> str:
    """The JSON text of private tests. Leaves the row out where it is packed otherwise."""
    if not text.strip():
        raise leave_out("its private tests are missing")
    if text.lstrip().startswith("["):
        return text
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
        is_whole = unpacker.eof or bool(unpacker.unconsumed_tail)
        unpacked = _read_pickled_text(content) if unpacker.eof else ""
    except (ValueError, zlib.error, IndexError, MemoryError):
        is_whole, unpacked = False, ""
    if not is_whole:
        raise leave_out("its private tests cannot be unpacked")
    if not unpacked:
        raise leave_out(f"its private tests are more than {MOST_BYTES // 1024 // 1024} MB")
    return unpacked


def _read_pickled_text(content: bytes) -> str:
    """ValueError for a pickle of anything else than one text."""
    texts: list[str] = []
    for instruction, argument, _ in pickletools.genops(content):
        if instruction.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(str(argument))
        elif instruction.name not in ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"):
            raise ValueError("not one text")
    (text,) = texts
    return text
