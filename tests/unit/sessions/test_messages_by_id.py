"""Messages read by their ids."""

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session


def test_many_messages_are_read_by_one_query(store):
    """Thousands come back at once; rewound and trashed messages do not."""
    for name in ("kept", "trashed"):
        store.create(Session(SessionId(name), source="cli", started=1.0))
    said = [NewMessage(Message(Role.USER, f"word {number}"), float(number), Origin.PERSON) for number in range(2_000)]
    ids = store.append(SessionId("kept"), said)
    gone = store.append(SessionId("trashed"), said[:3])
    store.rewind(SessionId("kept"), ids[-1])
    store.upkeep.delete([SessionId("trashed")])
    asked = []
    store.database.connection.set_exec_trace(lambda cursor, sql, bindings: asked.append(sql) or True)

    rows = store.messages_by_id([*gone, *reversed(ids), MessageId(10**30), MessageId(-1)])

    assert [row.message.text for row in rows] == [one.message.text for one in said[:-1]]
    assert len([sql for sql in asked if "FROM messages" in sql]) == 1
