-- A client that sends only the end of a long conversation is recognised by its last messages.
CREATE INDEX client_messages_by_hash ON client_messages (user_id, hash);
