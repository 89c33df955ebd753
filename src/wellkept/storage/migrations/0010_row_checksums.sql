-- A checksum for every row that has none of another kind: messages have their own, blobs and prompts are named by their
-- hash, and the index of `blob_uses` repeats all of it. `storage/row_checksums.py` computes it; until then it is empty.
-- The triggers remove the checksum of a row that another program changes.

INSERT OR REPLACE INTO state_meta (key, value) SELECT 'row_checksums_missing', '1' FROM sessions LIMIT 1;

ALTER TABLE state_meta ADD COLUMN checksum INTEGER;
CREATE TRIGGER state_meta_unchecked AFTER UPDATE OF
  key, value
ON state_meta WHEN new.checksum IS old.checksum BEGIN
  UPDATE state_meta SET checksum = NULL
  WHERE key = new.key;
END;

ALTER TABLE sessions ADD COLUMN checksum INTEGER;
CREATE TRIGGER sessions_unchecked AFTER UPDATE OF
  id, source, user_id, profile, project, model, title, parent_session_id, link, started, ended, end_reason,
  archived, trashed, prompt_hash, context_from, metadata
ON sessions WHEN new.checksum IS old.checksum BEGIN
  UPDATE sessions SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE carried ADD COLUMN checksum INTEGER;
CREATE TRIGGER carried_unchecked AFTER UPDATE OF
  session_id, position, message_id, rewind_run
ON carried WHEN new.checksum IS old.checksum BEGIN
  UPDATE carried SET checksum = NULL
  WHERE session_id = new.session_id AND position = new.position;
END;

ALTER TABLE notes ADD COLUMN checksum INTEGER;
CREATE TRIGGER notes_unchecked AFTER UPDATE OF
  session_id, key, value
ON notes WHEN new.checksum IS old.checksum BEGIN
  UPDATE notes SET checksum = NULL
  WHERE session_id = new.session_id AND key = new.key;
END;

ALTER TABLE nodes ADD COLUMN checksum INTEGER;
CREATE TRIGGER nodes_unchecked AFTER UPDATE OF
  id, session_id, depth, text, children, created
ON nodes WHEN new.checksum IS old.checksum BEGIN
  UPDATE nodes SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE tombstones ADD COLUMN checksum INTEGER;
CREATE TRIGGER tombstones_unchecked AFTER UPDATE OF
  hash, forgotten
ON tombstones WHEN new.checksum IS old.checksum BEGIN
  UPDATE tombstones SET checksum = NULL
  WHERE hash = new.hash;
END;

ALTER TABLE outbox ADD COLUMN checksum INTEGER;
CREATE TRIGGER outbox_unchecked AFTER UPDATE OF
  id, provider, session_id, hook, payload, idempotency_key, created, attempts, not_before, last_error, user_id
ON outbox WHEN new.checksum IS old.checksum BEGIN
  UPDATE outbox SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE outbox_lanes ADD COLUMN checksum INTEGER;
CREATE TRIGGER outbox_lanes_unchecked AFTER UPDATE OF
  provider, ledger_id, delivered, dropped, lease_holder, lease_until, user_id
ON outbox_lanes WHEN new.checksum IS old.checksum BEGIN
  UPDATE outbox_lanes SET checksum = NULL
  WHERE provider = new.provider;
END;

ALTER TABLE provider_calls ADD COLUMN checksum INTEGER;
CREATE TRIGGER provider_calls_unchecked AFTER UPDATE OF
  id, session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in, user_id
ON provider_calls WHEN new.checksum IS old.checksum BEGIN
  UPDATE provider_calls SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE provider_health ADD COLUMN checksum INTEGER;
CREATE TRIGGER provider_health_unchecked AFTER UPDATE OF
  provider, failures, paused_until, last_error, last_error_at, last_success_at, user_id
ON provider_health WHEN new.checksum IS old.checksum BEGIN
  UPDATE provider_health SET checksum = NULL
  WHERE provider = new.provider;
END;

ALTER TABLE usage ADD COLUMN checksum INTEGER;
CREATE TRIGGER usage_unchecked AFTER UPDATE OF
  user_id, session_id, day, model, task, api_call_count, input_tokens, output_tokens, cache_read_tokens,
  cache_write_tokens, cost
ON usage WHEN new.checksum IS old.checksum BEGIN
  UPDATE usage SET checksum = NULL
  WHERE user_id = new.user_id AND session_id = new.session_id AND day = new.day AND model = new.model AND task =
  new.task;
END;

ALTER TABLE receipts ADD COLUMN checksum INTEGER;
CREATE TRIGGER receipts_unchecked AFTER UPDATE OF
  id, user_id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds
ON receipts WHEN new.checksum IS old.checksum BEGIN
  UPDATE receipts SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE receipt_items ADD COLUMN checksum INTEGER;
CREATE TRIGGER receipt_items_unchecked AFTER UPDATE OF
  receipt_id, position, message_id, session_id, page, score, parts
ON receipt_items WHEN new.checksum IS old.checksum BEGIN
  UPDATE receipt_items SET checksum = NULL
  WHERE receipt_id = new.receipt_id AND position = new.position;
END;

ALTER TABLE receipt_marks ADD COLUMN checksum INTEGER;
CREATE TRIGGER receipt_marks_unchecked AFTER UPDATE OF
  user_id, receipt_id, message_id, mark, created
ON receipt_marks WHEN new.checksum IS old.checksum BEGIN
  UPDATE receipt_marks SET checksum = NULL
  WHERE user_id = new.user_id AND receipt_id = new.receipt_id AND message_id = new.message_id;
END;

ALTER TABLE captured_sessions ADD COLUMN checksum INTEGER;
CREATE TRIGGER captured_sessions_unchecked AFTER UPDATE OF
  user_id, client, external_id, session_id, waits_for, title, captured, import_number
ON captured_sessions WHEN new.checksum IS old.checksum BEGIN
  UPDATE captured_sessions SET checksum = NULL
  WHERE user_id = new.user_id AND client = new.client AND external_id = new.external_id;
END;

ALTER TABLE captured_messages ADD COLUMN checksum INTEGER;
CREATE TRIGGER captured_messages_unchecked AFTER UPDATE OF
  key, message_id, mark, import_number
ON captured_messages WHEN new.checksum IS old.checksum BEGIN
  UPDATE captured_messages SET checksum = NULL
  WHERE key = new.key;
END;

ALTER TABLE captured_turns ADD COLUMN checksum INTEGER;
CREATE TRIGGER captured_turns_unchecked AFTER UPDATE OF
  user_id, client, external_id, turn, prompt, messages
ON captured_turns WHEN new.checksum IS old.checksum BEGIN
  UPDATE captured_turns SET checksum = NULL
  WHERE user_id = new.user_id AND client = new.client AND external_id = new.external_id AND turn = new.turn;
END;

ALTER TABLE transcripts ADD COLUMN checksum INTEGER;
CREATE TRIGGER transcripts_unchecked AFTER UPDATE OF
  user_id, client, path, position, check_bytes, state, waiting_bytes, read_at
ON transcripts WHEN new.checksum IS old.checksum BEGIN
  UPDATE transcripts SET checksum = NULL
  WHERE user_id = new.user_id AND client = new.client AND path = new.path;
END;

ALTER TABLE tokens ADD COLUMN checksum INTEGER;
CREATE TRIGGER tokens_unchecked AFTER UPDATE OF
  id, user_id, name, scopes, created, expires, last_used, hash
ON tokens WHEN new.checksum IS old.checksum BEGIN
  UPDATE tokens SET checksum = NULL
  WHERE id = new.id;
END;

ALTER TABLE conversation_keys ADD COLUMN checksum INTEGER;
CREATE TRIGGER conversation_keys_unchecked AFTER UPDATE OF
  user_id, key, session_id, last_used
ON conversation_keys WHEN new.checksum IS old.checksum BEGIN
  UPDATE conversation_keys SET checksum = NULL
  WHERE user_id = new.user_id AND key = new.key;
END;

ALTER TABLE client_messages ADD COLUMN checksum INTEGER;
CREATE TRIGGER client_messages_unchecked AFTER UPDATE OF
  user_id, key, position, hash, message_id
ON client_messages WHEN new.checksum IS old.checksum BEGIN
  UPDATE client_messages SET checksum = NULL
  WHERE user_id = new.user_id AND key = new.key AND position = new.position;
END;

ALTER TABLE imports ADD COLUMN checksum INTEGER;
CREATE TRIGGER imports_unchecked AFTER UPDATE OF
  number, id, user_id, source, started, finished, undone, counts, folder
ON imports WHEN new.checksum IS old.checksum BEGIN
  UPDATE imports SET checksum = NULL
  WHERE rowid = new.rowid;
END;

ALTER TABLE imported_usage ADD COLUMN checksum INTEGER;
CREATE TRIGGER imported_usage_unchecked AFTER UPDATE OF
  import_number, session_id, day, model, task, calls, input_tokens, output_tokens, cache_read_tokens,
  cache_write_tokens
ON imported_usage WHEN new.checksum IS old.checksum BEGIN
  UPDATE imported_usage SET checksum = NULL
  WHERE import_number = new.import_number AND session_id = new.session_id AND day = new.day AND model = new.model
  AND task = new.task;
END;

ALTER TABLE imported_items ADD COLUMN checksum INTEGER;
CREATE TRIGGER imported_items_unchecked AFTER UPDATE OF
  user_id, source, kind, name, part, mark, state, place, import_number
ON imported_items WHEN new.checksum IS old.checksum BEGIN
  UPDATE imported_items SET checksum = NULL
  WHERE user_id = new.user_id AND source = new.source AND kind = new.kind AND name = new.name AND part = new.part;
END;
