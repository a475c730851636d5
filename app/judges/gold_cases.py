"""Characters in scenes with replies that are known to be good, and questions for judges about them."""

from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from app.characters.casting import (
    Cast,
    Staging,
    build_case_document,
    build_conversation,
    build_gate_facts,
    build_scene_probes,
    list_claimable_sources,
)
from app.domain.judging import Candidate, GateFacts, JudgeRequest, Probes, Rubric, SourceEvent
from app.domain.tasks import Message
from app.judges.gates.gate_registry import find_hints
from app.judges.presentation_order import derive_opaque_ids
from app.judges.text_normalisation import Reply


@dataclass(frozen=True)
class GoldCase:
    """One character in one scene, with a reply that is known to be good."""

    cast: Cast
    clean: str
    rivals: tuple[str, ...]
    """Replies of other characters in the same language."""
    prompt: str = ""
    otherwise: str | None = None
    """The good reply in the counterfactual of this scene, or in the scene whose counterfactual this is."""

    @cached_property
    def gates(self) -> GateFacts:
        return build_gate_facts(self.cast, Staging(), self.prompt)

    @cached_property
    def document(self) -> dict[str, JsonValue]:
        return build_case_document(self.cast, Staging(), (), ())

    @cached_property
    def probes(self) -> Probes:
        return build_scene_probes(self.cast)

    @property
    def sources(self) -> tuple[SourceEvent, ...]:
        return list_claimable_sources(self.cast, ())

    @property
    def language(self) -> str:
        return self.cast.sheet.voice.language

    def build_candidate(self, name: str, text: str) -> Candidate:
        """A candidate with the hints that judges are given."""
        return Candidate(id=name, text=text, hints=tuple(hint.notices for hint in find_hints(Reply(text), self.gates)))


def build_identical_request(specimen: GoldCase, text: str, rubric: Rubric, copies: int = 2) -> JudgeRequest:
    """The same reply several times: a preference shows position bias. More than two copies have letters that turn with
    the scene, so that a preference for letters can be told from one for places."""
    texts = [text + " " * number for number in range(copies)]
    ids = sorted(derive_opaque_ids(f"twice {specimen.cast.scene.id}", texts).values())
    request = build_check_request(specimen, rubric, tuple(specimen.build_candidate(name, text) for name in ids), 0)
    return request if copies == 2 else request.model_copy(update={"mirrored": False})


def build_check_request(
    specimen: GoldCase, rubric: Rubric, candidates: tuple[Candidate, ...], vote: int = 0
) -> JudgeRequest:
    return JudgeRequest(
        rubric=rubric,
        document=specimen.document,
        probes=specimen.probes,
        sources=specimen.sources,
        language=specimen.language,
        candidates=candidates,
        vote=vote,
        conversation=(Message(role="system", content=specimen.prompt), *build_conversation(specimen.cast)),
    )
