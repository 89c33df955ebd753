-- Queued writes, lanes, provider calls and provider health belong to one user each.
-- The lane of another user than the owner is named `provider/user`; its rows get that user here.

ALTER TABLE outbox ADD COLUMN user_id TEXT NOT NULL DEFAULT 'owner';
UPDATE outbox SET user_id = substr(provider, instr(provider, '/') + 1) WHERE instr(provider, '/') > 0;

ALTER TABLE outbox_lanes ADD COLUMN user_id TEXT NOT NULL DEFAULT 'owner';
-- other users have their own ledger now, so a cursor into the owner's means nothing
UPDATE outbox_lanes SET user_id = substr(provider, instr(provider, '/') + 1), ledger_id = NULL
WHERE instr(provider, '/') > 0;

ALTER TABLE provider_calls ADD COLUMN user_id TEXT NOT NULL DEFAULT 'owner';
UPDATE provider_calls SET user_id = (SELECT s.user_id FROM sessions s WHERE s.id = provider_calls.session_id)
WHERE session_id IN (SELECT id FROM sessions WHERE user_id <> 'owner');

ALTER TABLE provider_health ADD COLUMN user_id TEXT NOT NULL DEFAULT 'owner';
