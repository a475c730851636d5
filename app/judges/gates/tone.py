"""Gates on tone: refusals of a service, offers of help by an assistant, talk about scoring."""

from collections.abc import Sequence
from typing import Final

from app.domain.judging import GateFacts
from app.judges.text_normalisation import Reply, to_spoken_form

_POLICY_PHRASES: Final = (
    "against my guidelines",
    "against my programming guidelines",
    "against content policy",
    "violates content policy",
    "content policies",
    "usage policies",
    "my safety guidelines",
    "my ethical guidelines",
    "i can t assist with that request",
    "i cannot assist with that request",
    "i m unable to assist with that request",
    "i can t fulfill that request",
    "i cannot fulfill that request",
    "i can t fulfill this request",
    "i cannot fulfill this request",
    "unable to fulfill this request",
    "i can t generate that",
    "i can t create content",
    "i cannot create content",
    "gegen meine richtlinien",
    "verstößt gegen die richtlinien",
    "verstösst gegen die richtlinien",
    "diese anfrage kann ich nicht",
    "kann ich diese anfrage nicht",
    "solche inhalte kann ich nicht",
    "ich kann diese anfrage",
    "contra mis directrices",
    "contra mis pautas",
    "política de contenido",
    "políticas de contenido",
    "no puedo cumplir con esa solicitud",
    "no puedo cumplir con esta solicitud",
    "no puedo ayudar con esa solicitud",
    "no puedo generar contenido",
    "contraire à mes directives",
    "contraire à mes règles d utilisation",
    "politique de contenu",
    "politiques de contenu",
    "je ne peux pas répondre à cette demande",
    "je ne peux pas donner suite à cette demande",
    "je ne peux pas satisfaire cette demande",
    "je ne peux pas vous aider avec cette demande",
    "je ne peux pas générer ce contenu",
    "je ne peux pas générer de contenu",
    "contro le mie linee guida",
    "viola le mie linee guida",
    "politica sui contenuti",
    "politiche sui contenuti",
    "non posso soddisfare questa richiesta",
    "non posso soddisfare la tua richiesta",
    "non posso rispondere a questa richiesta",
    "non posso aiutarti con questa richiesta",
    "non posso aiutarla con questa richiesta",
    "non posso generare contenuti",
)
"""No character declines in these words."""

_DECLINING_PHRASES: Final = (
    "i m sorry but i can t",
    "i m sorry but i cannot",
    "i am sorry but i cannot",
    "i can t help with that",
    "i cannot help with that",
    "i can t help you with that",
    "i cannot help you with that",
    "i can t assist with that",
    "i m not able to help with",
    "i m unable to help",
    "dabei kann ich nicht helfen",
    "dabei kann ich dir nicht helfen",
    "dabei kann ich ihnen nicht helfen",
    "es tut mir leid aber ich kann",
    "tut mir leid aber das kann ich nicht",
    "lo siento pero no puedo",
    "no puedo ayudarte con eso",
    "no puedo ayudarle con eso",
    "je suis désolé mais je ne peux pas",
    "je suis désolée mais je ne peux pas",
    "désolé mais je ne peux pas",
    "désolée mais je ne peux pas",
    "je ne peux pas vous aider avec cela",
    "je ne peux pas t aider avec ça",
    "je ne peux pas vous aider sur ce point",
    "mi dispiace ma non posso",
    "non posso aiutarla con questo",
    "non posso aiutarti con questo",
    "non posso aiutarti in questo",
    "non sono in grado di aiutarla",
    "non sono in grado di aiutarti",
)
"""Characters may say these as well."""

_OFFERING_PHRASES: Final = (
    "i d be happy to help",
    "i would be happy to help",
    "i m happy to help",
    "how can i assist you",
    "how may i assist you",
    "let me know if you have any",
    "feel free to ask",
    "i hope this helps",
    "it is important to note",
    "it s important to note",
    "gerne helfe ich ihnen",
    "ich helfe ihnen gerne",
    "ich helfe dir gerne",
    "lassen sie mich wissen wenn sie",
    "lass es mich wissen wenn du",
    "ich hoffe das hilft",
    "es ist wichtig zu beachten",
    "con mucho gusto le ayudo",
    "estaré encantado de ayudar",
    "estaré encantada de ayudar",
    "hágame saber si",
    "no dude en preguntar",
    "espero que esto ayude",
    "es importante tener en cuenta",
    "es importante señalar",
    "je serais ravi de vous aider",
    "je serais ravie de vous aider",
    "ravi de vous aider",
    "ravie de vous aider",
    "comment puis je vous aider",
    "en quoi puis je vous aider",
    "n hésitez pas à me demander",
    "n hésitez pas à demander",
    "faites moi savoir si",
    "j espère que cela vous aide",
    "j espère que cela aide",
    "il est important de noter",
    "il convient de noter",
    "sarei felice di aiutarla",
    "sarei felice di aiutarti",
    "sarò lieto di aiutarla",
    "come posso aiutarla",
    "come posso aiutarti",
    "non esiti a chiedere",
    "non esitare a chiedere",
    "fammi sapere se",
    "mi faccia sapere se",
    "spero che questo aiuti",
    "spero che questo ti aiuti",
    "spero che questo la aiuti",
    "è importante notare",
    "è importante sottolineare",
)
"""A clerk or a host may offer help in these words."""

_SCORING_PHRASES: Final = (
    "the evaluator",
    "the grader",
    "the rubric",
    "perfect score",
    "highest score",
    "maximum score",
    "full marks",
    "highest marks",
    "die höchste punktzahl",
    "volle punktzahl",
    "der bewerter",
    "puntuación máxima",
    "máxima puntuación",
    "el evaluador",
    "la note maximale",
    "la meilleure note",
    "le score maximal",
    "l évaluateur",
    "il punteggio massimo",
    "punteggio pieno",
    "il massimo dei voti",
    "il valutatore",
)
"""A teacher or an archer may mention these."""


def refuses(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, _POLICY_PHRASES)


def may_refuse(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, _DECLINING_PHRASES)


def sounds_like_assistant(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, _OFFERING_PHRASES)


def mentions_scoring(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, _SCORING_PHRASES)


def _says_unprompted(reply: Reply, facts: GateFacts, phrases: Sequence[str]) -> bool:
    """Whether the reply has a phrase that the player did not use first."""
    spoken = reply.spoken
    said = [phrase for phrase in phrases if phrase in spoken and f" {phrase} " in spoken]
    if not said:
        return False
    heard = to_spoken_form(facts.player_said)
    return any(f" {phrase} " not in heard for phrase in said)
