"""A world of a gateway that runs, and a day in it."""

import ssl
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import JsonValue, TypeAdapter

from app.domain.worlds import RetrievalExplanation

JSON = TypeAdapter[JsonValue](JsonValue)
Document = dict[str, JsonValue]
NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For loopback without TLS: each call would read all certificates anew."""

ROPE: Document = {
    "id": "rope",
    "time": "1312-04-03T09:15:00Z",
    "text": "The rope of the ferry broke at Reedgate.",
    "importance": 7,
}
TAX: Document = {"id": "tax", "time": "1312-04-03T10:30:00Z", "text": "The bailiff put a new tax on salt."}
BRIDGE: Document = {
    "id": "bridge",
    "time": "1312-04-03T11:00:00Z",
    "text": "The Margravine ordered a bridge at Reedgate to end the ferry.",
    "visibility": ["ottoline_vesk"],
    "leak_terms": ["toll bridge"],
}
SPLICED: Document = {
    "id": "spliced",
    "time": "1312-04-03T15:00:00Z",
    "text": "The rope of the ferry is spliced.",
    "supersedes": "rope",
}
NOON = "1312-04-03T12:00:00Z"
ASKS = "Is the ferry running?"


@dataclass(frozen=True)
class Told:
    """One world of a gateway."""

    url: str
    name: str

    def ask(self, method: str, path: str = "", body: JsonValue = None, **query: str) -> httpx.Response:
        content = None if body is None else JSON.dump_json(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        address = f"{self.url}/worlds/{self.name}{path}"
        return httpx.request(
            method, address, content=content, headers=headers, params=query, timeout=120, verify=NO_AUTHORITIES
        )

    def tell(self, *events: JsonValue) -> httpx.Response:
        return self.ask("POST", "/events", {"events": list(events)})

    def ids(self) -> list[str]:
        return [event["id"] for event in self.ask("GET", "/events").raise_for_status().json()["events"]]

    def branch(self, name: str, at: str) -> "Told":
        other = Told(self.url, name)
        other.ask("PUT", "", {"parent": self.name, "at": at}).raise_for_status()
        return other

    def explained(self, **query: str) -> RetrievalExplanation:
        return RetrievalExplanation.model_validate(self.ask("GET", "/events", **query).raise_for_status().json())

    def context(self, said: str, **more: JsonValue) -> httpx.Response:
        line: Document = {"role": "user", "content": said}
        body: Document = {"character": "hob_tarrant", "conversation": [line], **more}
        return self.ask("POST", "/context", body)


def fields_of(reply: httpx.Response) -> tuple[int, list[str]]:
    return reply.status_code, [error["field"] for error in reply.json()["errors"]]
