"""What is wrong in the settings alone, found before anything is opened."""

from collections.abc import Collection

from app.domain.suggestions import suggest
from app.judges.offline import NAME as OFFLINE
from app.main.components import build_judge_config
from app.settings import Settings, SettingsError, find_where_set
from app.store.database import parse_url


def require_known_names(settings: Settings, environments: Collection[str]) -> None:
    """SettingsError naming each environment, data set and judge that is not there, each judge that cannot be, and a
    database URL that is none."""
    wrong = [
        *_unknown_environments(settings, environments),
        *_unknown_judges(settings),
        *_broken_judges(settings),
        *_broken_database_url(settings),
    ]
    if wrong:
        raise SettingsError("\n".join(wrong))


def _unknown_environments(settings: Settings, environments: Collection[str]) -> list[str]:
    named = [("environments", name) for name in settings.environments] + [
        ("datasets", name) for name in settings.datasets
    ]
    return [
        f"{find_where_set(key)}: there is no environment {key[1]!r}{suggest(key[1], environments)}"
        for key in named
        if key[1] not in environments
    ]


def _unknown_judges(settings: Settings) -> list[str]:
    named = [
        (("environments", environment, "judges"), name)
        for environment, given in settings.environments.items()
        for name in given.judges
    ]
    named += [
        (("judges", name, "fallback"), judge.fallback)
        for name, judge in settings.judges.items()
        if judge.fallback is not None
    ]
    known = {OFFLINE, *settings.judges}
    return [
        f"{find_where_set(key)}: there is no judge {name!r}{suggest(name, known)}"
        for key, name in named
        if name not in known
    ]


def _broken_judges(settings: Settings) -> list[str]:
    wrong = []
    for name, judge in settings.judges.items():
        try:
            build_judge_config(settings, name, judge)
        except ValueError as error:
            wrong.append(f"{find_where_set(('judges', name))}: {error}")
    return wrong


def _broken_database_url(settings: Settings) -> list[str]:
    try:
        parse_url(settings.database_url)
    except ValueError as error:
        return [f"{find_where_set(('database_url',))}: {error}"]
    return []
