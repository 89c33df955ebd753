"""Sessions as rows: the rules that SQLite and PostgreSQL share, on the tables that both have.

Statements are in `FILE.sql`; one that PostgreSQL needs in another form has the same name in `FILE.postgres.sql`.

database      what a database provides: connections, transactions, and its own text index
store         the port, bound to one user; each method is one short transaction
session_rows  sessions, titles, prompts, notes, leases, usage, nodes, quarantine
message_rows  messages, their checksums, lineage, and the context that a model is sent
upkeep        archive, trash, prune, statistics
removal       rows removed for good, and the marks that keep an import from bringing them back
forgetting    planned removal of sessions or words, and of what cites them
receipts      what models were shown, and the marks of people
transfer      export and import of JSONL
semantic      search by vectors, with quantised vectors of all messages in memory · vectors: their table
"""
