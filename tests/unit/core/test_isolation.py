"""The tests themselves: no network, no keys, a home of their own."""

import os
import socket

import pytest


def test_another_machine_cannot_be_reached():
    """Any connection that leaves this machine fails the test that tries it."""
    with socket.socket() as attempt, pytest.raises(AssertionError, match=r"192\.0\.2\.1"):
        attempt.connect(("192.0.2.1", 80))
    with pytest.raises((AssertionError, OSError)):
        socket.create_connection(("example.invalid", 80), timeout=1)


def test_this_machine_can():
    """Loopback servers of tests are free."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass


def test_nothing_of_the_person_is_visible(tmp_path):
    """The home is the test's own, and no key of the person's is there."""
    assert os.environ["KEPT_HOME"] == str(tmp_path / "home")
    assert not [name for name in os.environ if name.endswith("API_KEY")]
    assert {name for name in os.environ if name.startswith("KEPT_")} <= {"KEPT_HOME", "KEPT_HEAVY"}
