"""What stands before Atropos' posts, and what happens when somebody leaves in the middle."""

import json
import socket
import time
from pathlib import Path

import httpx

from tests.support.atropos import TRAINER, group, large_group
from tests.support.atropos_gateway import LIMIT, PREFIX, ROOT_PORT, app_on, client_of
from tests.support.serving import free_port, serving
from tests.support.tables import read_table


def test_posted_groups_pass_the_same_door(tmp_path: Path) -> None:
    app = app_on(tmp_path, api_key="secret")
    key, gzipped = {"Authorization": "Bearer secret"}, {"Content-Encoding": "gzip"}
    body, much = json.dumps(group(1)), b" " * (LIMIT + 1)
    with client_of(app) as client:
        replies = {
            "no key": client.post("scored_data", content=body),
            "key": client.post("scored_data", content=body, headers=key),
            "another origin": client.post("scored_data", content=body, headers={**key, "Origin": "http://elsewhere"}),
            "too large": client.post("scored_data_list", content=much, headers=key),
            "too large in pieces": client.post("scored_data", content=iter([much, much]), headers=key),
            "deflate": client.post("scored_data", content=body, headers={**key, "Content-Encoding": "deflate"}),
            "no gzip": client.post("scored_data_list", content=body, headers={**key, **gzipped}),
            "no run": client.post("BATCH/scored_data", content=body, headers=key),
            "root": client_of(app, "", ROOT_PORT).get("/info"),
            "key as userinfo": client_of(app, "", ROOT_PORT).get("/info", auth=("anyone", "secret")),
        }
        counted = client_of(app, "").get("/metrics", headers=key).text
    assert {name: reply.status_code for name, reply in replies.items()} == read_table(
        __file__, "door.yaml", dict[str, int]
    )
    assert [len(reply.headers["X-Request-ID"]) for reply in replies.values()] == [16] * len(replies)
    assert f'{{method="POST",route="{PREFIX}/scored_data",status="200"}} 1.0' in counted


def test_a_post_that_breaks_off_is_nothing_and_a_batch_that_is_not_taken_goes_out_again(tmp_path: Path) -> None:
    """The original takes a batch off the queue before it writes the reply."""
    settings = {"ATROPOS_ENVS_ATROPOS_PORT": str(port := free_port())}
    large = [large_group(number, 256, 2048) for number in range(2)]
    with serving(tmp_path, settings=settings), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(b"POST /scored_data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        client.post("/register", json={**TRAINER, "batch_size": 256})
        for one in large:
            client.post("/scored_data", json=one)
        with socket.socket() as impatient:
            impatient.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            impatient.connect(("127.0.0.1", port))
            impatient.sendall(b"GET /batch HTTP/1.1\r\nHost: localhost\r\n\r\n")
            impatient.recv(1000)
        while client.get("/status").json()["queue_size"] < 2:  # until it is known that the client has gone
            time.sleep(0.01)
        firsts = [client.get("/batch").json()["batch"][0]["scores"][0] for _ in range(2)]
        assert (firsts, client.get("/batch").json()) == ([one["scores"][0] for one in large], {"batch": None})
    assert "traceback" not in (tmp_path / "gateway.log").read_text()
