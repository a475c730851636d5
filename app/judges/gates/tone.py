"""Gates on tone: refusals of a service, offers of help by an assistant, talk about scoring."""

from app.domain.judging import GateFacts
from app.judges.gates.wordings import WordingKind, find_words
from app.judges.text_normalisation import Reply, fold_text, to_sentences


def refuses(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "policy")


def may_refuse(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "declining")


def sounds_like_assistant(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "offering")


def mentions_scoring(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "scoring")


def _says_unprompted(reply: Reply, facts: GateFacts, kind: WordingKind) -> bool:
    """Whether the reply has words that the player did not use first."""
    said = [reply.sentences[start:end] for start, end in find_words(kind, reply.sentences)]
    if not said:
        return False
    heard = to_sentences(fold_text(facts.player_said))
    return any(words not in heard for words in said)
