"""The ledger as providers read it."""

from wellkept.agent.dependencies import PageLedger
from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Session
from wellkept.memory.page import Add, Author


def test_a_mirrored_write_names_the_platform_of_its_conversation(home):
    """Providers get the platform of the conversation; a write outside of a conversation has none."""
    app = open_app(str(home), environ={"HOME": str(home.parent)})
    session = Session(id=SessionId("s1"), source="telegram", started=1.0)
    app.owner.sessions.create(session)
    app.owner.memory.apply("user", Add("Prefers tea"), Author(origin="agent", session_id=session.id))
    app.owner.memory.apply("user", Add("Prefers cake"), Author(origin="user"))

    rows = PageLedger(app.owner.memory, app.owner.sessions).since(0)

    assert [(row.after, row.platform) for row in rows] == [("Prefers tea", "telegram"), ("Prefers cake", "")]
    app.close()
