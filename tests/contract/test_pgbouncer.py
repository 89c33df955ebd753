"""The contracts of pages and conversations through Debian's PgBouncer in transaction mode, where it is installed.

`make test-pgbouncer` runs everything else that uses PostgreSQL through it.
"""

import pytest

from . import test_memory, test_session_store


@pytest.fixture(scope="module")
def postgres_server():
    """A server behind PgBouncer, whose four connections all clients share."""
    from wellkept.testing.postgres_server import EmbeddedServer, Unavailable

    try:
        server = EmbeddedServer(is_pooled=True)
    except Unavailable as error:
        pytest.skip(str(error))
    with server:
        yield server


class TestPages(test_memory.TestPostgres):
    pass


class TestConversations(test_session_store.TestPostgres):
    pass
