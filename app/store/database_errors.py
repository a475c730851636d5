"""Maps database errors to errors of the service."""

import errno
import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError

from app.domain.errors import GatewayError, InvalidRequest, StoreUnavailable

_TRANSIENT = {"40001", "40P01"}
"""PostgreSQL's serialization_failure and deadlock_detected: the same work succeeds when tried again."""

_PROMPT_GONE = {"fk_judgements_prompt_digest", "fk_tasks_prompt_digest"}
"""Constraints of PostgreSQL that a prompt breaks which was pruned while somebody stored a use of it, or the other way
round: the same work succeeds when tried again, since who uses a prompt stores it first."""

_LOST_STATEMENT = {"42P05", "26000"}
"""PostgreSQL's duplicate_prepared_statement and invalid_sql_statement_name: a pooler changes sessions under the
driver."""


DISK_FULL = "the disk of the database cannot be written to: no space left"

_DISK_FULL_STATE = "53100"
"""PostgreSQL's disk_full."""

_READ_ONLY_STATE = "25006"
"""PostgreSQL's read_only_sql_transaction: the server is a standby that was not promoted."""


def is_transient(error: Exception) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    broken = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return getattr(error.orig, "sqlstate", None) in _TRANSIENT or broken in _PROMPT_GONE


def is_disconnect(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_disk_full(error: BaseException) -> bool:
    """Whether the driver or the system said that there is no space left."""
    if isinstance(error, DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _DISK_FULL_STATE
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def as_gateway_error(error: Exception) -> Exception:
    """The error to raise for `error`. Values that no database can hold are the caller's fault; an unavailable database
    is a temporary fault of the service; other errors are bugs and stay as they are."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, DataError | UnicodeEncodeError | OverflowError):
        return InvalidRequest("a value cannot be stored in the database")
    if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _LOST_STATEMENT:
        return StoreUnavailable(
            "a connection pooler stands before the database and keeps no prepared statements: set"
            " database_prepared_statements to false"
        )
    if is_disk_full(error):
        return StoreUnavailable(DISK_FULL)
    if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _READ_ONLY_STATE:
        return StoreUnavailable("the server of the database takes no writes: it is a standby, or set to be read only")
    if isinstance(error, OperationalError | InterfaceError) or is_disconnect(error):
        return StoreUnavailable("the store cannot be reached or written to; retry later")
    return error
