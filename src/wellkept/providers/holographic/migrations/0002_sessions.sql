-- Every question weighs facts by the size of their sessions and by their length, without reading their texts.

CREATE INDEX facts_by_session ON facts (user_id, session_id, length);
