"""What a line is about."""

import pytest

from app.rag.world_retriever import MOST_TERMS, extract_query_terms


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Is the ferry on the old road running?", ("running", "road", "old", "ferry")),
        ("Is the war over, or will more men die?", ("die", "men", "war")),
        ("Ist der Krieg vorbei, und wo war die Fähre?", ("fahre", "vorbei", "krieg")),
        ("¿Qué pasó con el puente de la ciudad?", ("ciudad", "puente", "paso")),
        ("Où est la clé du moulin?", ("moulin", "cle")),
        ("Che cosa è successo al ponte?", ("ponte", "successo")),
        ("Who is she?", ("she", "is", "who")),
        ("渡し船はどうなった?", ("った", "なっ", "うな", "どう", "はど", "船は", "し船", "渡し")),
        ("rope ROPE Rope", ("rope",)),
        ("", ()),
    ],
)
def test_what_holds_a_sentence_together_is_not_asked_about(text: str, asked: tuple[str, ...]) -> None:
    assert extract_query_terms(text) == asked


def test_of_a_long_speech_its_end_counts() -> None:
    speech = " ".join(f"word{number}" for number in range(200))
    assert extract_query_terms(speech) == tuple(f"word{number}" for number in range(199, 199 - MOST_TERMS, -1))
