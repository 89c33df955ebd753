"""Every kind of documents keeps the same promises."""

import threading

import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.errors import Busy, StorageError
from wellkept.core.ids import UserId
from wellkept.skills.usage import Outcome, OutcomeLog, UsageFile
from wellkept.storage.documents import FolderDocuments, RowDocuments


@pytest.fixture(params=["folder", "postgres"])
def both(request, tmp_path):
    """Two views of the same documents, as two processes have them, and another user's."""
    if request.param == "folder":
        (tmp_path / "d").mkdir()
        yield FolderDocuments(tmp_path / "d"), FolderDocuments(tmp_path / "d"), FolderDocuments(tmp_path / "other")
        return
    from wellkept.storage.postgres.database import PostgresServer

    embedded = request.getfixturevalue("postgres_server")
    tenant = embedded.make_tenant()
    servers = [PostgresServer(embedded.shared_url, tenant=tenant) for _ in range(2)]
    ann, ben = UserId("ann"), UserId("ben")
    yield *(RowDocuments(server.for_user(ann), "d") for server in servers), RowDocuments(servers[0].for_user(ben), "d")
    for server in servers:
        server.close()


def test_documents_are_written_moved_and_removed(both):
    one, other, elsewhere = both
    one.write("b.json", b"first")
    one.write("b.json", b"second\xff")
    one.write("a.json", b"")
    one.append("log", b"1\n")
    other.append("log", b"2\n")

    assert other.names(".json") == ["a.json", "b.json"]
    assert (other.read("b.json"), other.read("a.json"), other.read("log")) == (b"second\xff", b"", b"1\n2\n")
    assert (elsewhere.names(""), elsewhere.read("b.json")) == ([], None)
    other.move("b.json", "rejected/b.json")
    assert (one.names(".json"), one.read("b.json"), one.read("rejected/b.json")) == (["a.json"], None, b"second\xff")
    one.remove("b.json")
    assert one.read("rejected/b.json") is None


def test_names_below_and_alike_are_other_documents(both):
    """A listing covers the folder itself; a removal reaches every folder below, and no name that only ends the same."""
    one, other, _ = both
    for name in ("b", "a", "ab"):
        one.write(name, name.encode())
    one.move("b", "old/b")
    one.write("b", b"new")

    assert other.names("b") == ["ab", "b"]
    assert other.names("a") == ["a"]
    assert (other.read("old/b"), other.read("b")) == (b"b", b"new")
    one.remove("b")
    assert [other.read(name) for name in ("old/b", "b", "ab")] == [None, None, b"ab"]
    one.remove("absent")


def test_one_writer_of_a_document_at_a_time(both):
    """A second writer waits up to its timeout; writers of other documents and users do not wait."""
    one, other, elsewhere = both
    elsewhere.write("log", b"")

    def attempt(documents, name):
        try:
            with documents.lock(name, timeout_seconds=0.05):
                seen.append(name)
        except Busy:
            seen.append("busy")

    seen = []
    with one.lock("log", timeout_seconds=5):
        for documents, name in ((other, "log"), (other, "b.json"), (elsewhere, "log")):
            thread = threading.Thread(target=attempt, args=(documents, name))
            thread.start()
            thread.join()
    attempt(other, "log")

    assert seen == ["busy", "b.json", "log", "log"]


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path):
    """A writer may have been killed in the middle of a line; the file is private."""
    documents = FolderDocuments(tmp_path)
    documents.append("log", b"1\n")
    documents.append("log", b"2")
    documents.append("log", b"3\n")
    documents.append("log", b"4\n")

    assert documents.read("log") == b"1\n2\n3\n4\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert FolderDocuments(tmp_path / "absent").names("") == []
    with pytest.raises(StorageError, match="append to"):
        FolderDocuments(tmp_path / "absent").append("log", b"x")
    with pytest.raises(StorageError, match="move"):
        documents.move("absent", "old/absent")


def test_counters_of_two_processes_add_up(both):
    """The lock covers reading and writing; outcomes are added by both."""
    files = [UsageFile(documents, FixedClock()) for documents in both[:2]]
    logs = [OutcomeLog(documents, FixedClock()) for documents in both[:2]]

    def count(place):
        for turn in range(8):
            files[place].record_view("deploy", used=True)
            logs[place].add([Outcome("deploy", "v", f"s{place}", turn, 0, finished=True)])

    threads = [threading.Thread(target=count, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert files[0].of("deploy").use_count == 16
    assert len(logs[1].rows()) == 16
    logs[0].trim(most=5)
    assert len(logs[1].rows()) == 5
