"""What is wrong in the settings alone, found before anything is opened."""

from collections.abc import Mapping

from app.domain.suggestions import suggest
from app.judges.offline import NAME as OFFLINE
from app.main.components import build_any_config, build_options
from app.ports.environment import Environment
from app.settings import PREFIX, Settings, SettingsError, find_where_set
from app.store.database import parse_url


def require_known_names(settings: Settings, environments: Mapping[str, type[Environment]]) -> None:
    """SettingsError naming each environment, data set and judge that is not there, each judge and rubric that cannot
    be, and a database URL that is none."""
    wrong = [
        *_unknown_environments(settings, environments),
        *_unknown_judges(settings),
        *_broken_judges(settings),
        *_broken_database_url(settings),
        *_processes_without_server(settings),
        *_broken_rubrics(settings, environments),
    ]
    if wrong:
        raise SettingsError("\n".join(wrong))


def list_named_environments(settings: Settings) -> frozenset[str]:
    return frozenset(name for _, name in _find_named_environments(settings))


def _find_named_environments(settings: Settings) -> list[tuple[tuple[str, ...], str]]:
    """The environments that the settings name, each with where."""
    return [
        *((("environments", name), name) for name in settings.environments),
        *((("datasets", name), name) for name in settings.datasets),
        *((("nemo_gym_ports", name, "environment"), one.environment) for name, one in settings.nemo_gym_ports.items()),
        *((("ors_ports", name, "environment"), one.environment) for name, one in settings.ors_ports.items()),
    ]


def _unknown_environments(settings: Settings, environments: Mapping[str, type[Environment]]) -> list[str]:
    return [
        f"{find_where_set(key)}: there is no environment {name!r}{suggest(name, environments)}"
        for key, name in _find_named_environments(settings)
        if name not in environments
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
            build_any_config(settings, name, judge)
        except ValueError as error:
            wrong.append(f"{find_where_set(('judges', name))}: {error}")
    return wrong


def _broken_database_url(settings: Settings) -> list[str]:
    try:
        parse_url(settings.database_url)
    except ValueError as error:
        return [f"{find_where_set(('database_url',))}: {error}"]
    return []


def _processes_without_server(settings: Settings) -> list[str]:
    if settings.processes == 1 or not settings.database_url.startswith("sqlite"):
        return []
    return [
        f"{settings.processes} processes cannot share an SQLite file: set {PREFIX}DATABASE_URL to "
        "postgresql://user:password@host/database, or serve with one process"
    ]


def _broken_rubrics(settings: Settings, environments: Mapping[str, type[Environment]]) -> list[str]:
    wrong = []
    for name, environment in settings.environments.items():
        if environment.rubric is None or name not in environments:
            continue
        where = find_where_set(("environments", name, "rubric"))
        if not environments[name].takes_rubric:
            takers = ", ".join(sorted(one for one, kind in environments.items() if kind.takes_rubric))
            wrong.append(f"{where}: {name} takes no rubric from the settings; these do: {takers or 'none'}")
            continue
        try:
            build_options(environment)
        except ValueError as error:
            wrong.append(f"{where}: {error}")
    return wrong
