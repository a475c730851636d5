"""Bodies that are large, or small with many faults: refused or read without holding up other requests."""

import json
from contextlib import closing
from http.client import HTTPConnection

import httpx
import pytest
from pydantic import BaseModel, JsonValue

from app.domain.tasks import Completion, Message
from app.domain.values import digest_of_model
from app.http.api.environment_routes import digest_request
from app.http.web.bodies import (
    DEFAULT_MAX_BYTES,
    LARGE_BYTES,
    MANY_ERRORS_BYTES,
    WINDOW,
    BodyReader,
    JsonRequest,
    parse_quickly,
    require_few_values,
)
from app.http.web.problems import MAX_ERRORS, RefusedBody
from app.service.requests import GroupToScore, ScoreRequest
from tests.support.gateways import Gateways
from tests.support.livez_waits import measure_wait
from tests.support.tables import read_table

TASK = "task_" + "0" * 32
LONGEST_WAIT = 0.2
TRIES = 10
SCORE = "/envs/countdown/score"


@pytest.fixture(scope="module")
def url(gateways: Gateways) -> str:
    return gateways.of().url


def take_task(url: str) -> str:
    batch = httpx.post(f"{url}/envs/countdown/next-batch", json={"batch_size": 1}).json()
    return str(batch["tasks"][0]["task_id"])


def write_group(task: str, *completions: object, **others: object) -> bytes:
    group = {"task_id": task, "completions": completions}
    return json.dumps({"groups": [group], **others}, separators=(",", ":")).encode()


def write_trained(task: str) -> bytes:
    """16 completions of 32,000 tokens: what a trainer sends."""
    number = -0.12345678901234567
    one = {"text": "x", "token_ids": [100_000] * 32_000, "logprobs": [number] * 32_000}
    return write_group(task, *[one] * 16)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), read_table(__file__, "large_bodies.yaml", list[tuple[str, int]]))
def test_no_body_keeps_others_waiting(url: str, name: str, status: int) -> None:
    task = take_task(url)
    bodies = {
        "empty completions": lambda: write_group(task, *[{}] * 100_000),
        "wrong tokens": lambda: write_group(task, {"text": "x", "token_ids": ["x"] * 300_000}),
        "many keys": lambda: write_group(task, {"text": "x"}, **{f"key{place}": 1 for place in range(10**6)}),
        "many lists": lambda: write_group(task, {"text": "x", "extra": {"x": [[]] * (7 * 10**6)}}),
        "text": lambda: write_group(task, {"text": "lorem: [ipsum], {dolor} " * 900_000}),
        "escapes": lambda: write_group(task, {"text": "\\" * 12_000_000}),
        "trained": lambda: write_trained(task),
    }
    body = bodies[name]()
    for _ in range(TRIES):  # others run here too
        seen, longest = measure_wait(url, SCORE, body)
        if longest < LONGEST_WAIT:
            break
    assert (seen, longest < LONGEST_WAIT) == (status, True), longest


async def read(body: bytes, model: type[BaseModel] = ScoreRequest) -> object:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    request = JsonRequest({"type": "http", "headers": []}, receive)
    request.reader = BodyReader(model)
    return await request.json()


async def find_faults(body: bytes) -> tuple[str, ...]:
    with pytest.raises(RefusedBody) as refused:
        await read(body)
    return tuple(fault.field for fault in refused.value.errors)


async def test_a_small_body_is_searched_for_all_faults_and_a_large_one_for_the_first_of_each_list() -> None:
    few, many = (write_group(TASK, *[{"x": 1}] * count, run="?") for count in (3, MANY_ERRORS_BYTES))
    first = ("body.groups[0].completions[0].x", "body.run")
    rest = tuple(f"body.groups[0].completions[{place}].x" for place in (1, 2))
    assert (await find_faults(few), await find_faults(many)) == ((first[0], *rest, first[1]), first)


@pytest.mark.parametrize(
    ("number", "status"),
    [("NaN", 422), ("1e999", 422), ('"\\ud800"', 422), ("[" * 40 + "]" * 40, 422), ("01", 400), ("1" * 5000, 400)],
)
async def test_large_bodies_are_as_strict_as_small_ones(number: str, status: int) -> None:
    told = []
    for size in (10, 100_000):
        body = write_group(TASK, {"text": "x" * size, "extra": {"a": 0}}).replace(b'"a":0', f'"a":{number}'.encode())
        with pytest.raises(RefusedBody) as refused:
            await read(body)
        told.append((refused.value.status_code, [fault.field for fault in refused.value.errors]))
    assert (told[0], told[0][0]) == (told[1], status)


class PlainFields(BaseModel):
    """A model that does not look for infinities itself."""

    text: str
    extra: JsonValue


@pytest.mark.parametrize("number", ["1e999", "-1E+309", "9" * 400 + ".5"])
async def test_numbers_too_large_for_a_float_are_refused_wherever_a_window_ends(number: str) -> None:
    for spaces in (0, LARGE_BYTES, *range(WINDOW - 50, WINDOW - 20, 3)):
        body = b'{"text": "1e999", "extra":%b[%b]}' % (b" " * spaces, number.encode())
        with pytest.raises(RefusedBody) as refused:
            await read(body, PlainFields)
        assert (refused.value.status_code, [one.field for one in refused.value.errors]) == (422, ["body.extra[0]"])
    fine = b'{"text": "%b", "extra": [1e-999, 1e30]}' % (number.encode() * LARGE_BYTES)
    assert await read(fine, PlainFields) == PlainFields(text=number * LARGE_BYTES, extra=[0.0, 1e30])


@pytest.mark.parametrize("spaces", ["", " ", "\n"])
def test_long_lists_of_numbers_are_parsed_in_windows_and_mean_the_same(spaces: str) -> None:
    numbers = [-0.12345678901234567, 0, 4294967295, -1e-300, 2.5e3, -0.0] * (WINDOW // 20)
    told: dict[str, object] = {"token_ids": numbers, "more": {"a": [[1, 2]] * 999, "b": ["]"] * 999, "c": [[]]}, "d": 1}
    body = json.dumps(told, separators=(f",{spaces}", f"{spaces}:")).encode()
    assert repr(parse_quickly(body)) == repr(json.loads(body))


@pytest.mark.parametrize("fault", ["1,,1", "1,", ",1", "1 1", "NaN", "01", "1" * WINDOW, "1.", "true false", "1}"])
@pytest.mark.parametrize("before", [0, WINDOW // 2 - 1, WINDOW])
def test_a_fault_in_a_long_list_is_seen_wherever_a_window_ends(before: int, fault: str) -> None:
    for after in ("", ",1" * WINDOW):
        body = f'{{"token_ids":[{"1," * before}{fault}{after}]}}'.encode()
        with pytest.raises(ValueError, match=r"."):
            parse_quickly(body + b" " * 99)


@pytest.mark.parametrize("text", ["\\", '"', '[,"', '\\",:{', "\n\\"])
def test_values_are_counted_outside_of_texts_wherever_a_window_ends(text: str) -> None:
    accepted = []
    for shift in range(8):
        body = json.dumps(["x" * (WINDOW - 10 - shift) + text * 20, 1, 1]).encode()
        for most in (4, 7):  # a list, two commas, and a text with escapes in two windows
            try:
                require_few_values(body, most)
                accepted.append(most)
            except RefusedBody:
                pass
    assert accepted == [7] * 8


def test_a_limit_names_its_setting(url: str) -> None:
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=20)) as connection:
        connection.putrequest("POST", SCORE)
        connection.putheader("Content-Length", str(DEFAULT_MAX_BYTES + 1))
        connection.endheaders()
        problem = json.loads(connection.getresponse().read())
    assert (problem["status"], "max_body_bytes" in problem["detail"], MAX_ERRORS) == (413, True, 50)


def test_the_digest_of_a_request_is_that_of_the_whole_model() -> None:
    spoken = Message(role="assistant", content="é")
    completions = (Completion(text="a", token_ids=(1,), logprobs=(-0.5,)), Completion(messages=(spoken,)))
    request = ScoreRequest(groups=(GroupToScore(task_id=TASK, completions=completions),) * 2, run="r")
    assert digest_request(request) == digest_of_model(request)
