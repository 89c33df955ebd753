"""Sessions in SQLite: one file, its rows and its indexes.

store         the port, bound to one user; each method is one short transaction
file          the open database: opening, tidying, erasing deleted bytes
session_rows  sessions, titles, prompts, notes, leases, usage, nodes, quarantine
message_rows  messages, lineage, and the context that a model is sent
checksums     checksums of message rows: computed where they are missing, and compared with the rows
index         the word index and the substring index: kept with the rows, rebuilt · index_check: compared with messages
postings      what `sessions.search` reads: posting lists, lengths, texts, metadata · fts5: its tokenizer and language
semantic      search by vectors · vectors: their table · vector_cache: memory-mapped quantised vectors of all messages
upkeep        archive, trash, prune, statistics, optimise
check         what is wrong with a file, found without writing
removal       rows removed for good, and the marks that keep an import from bringing them back
forgetting    planned removal of sessions or words, and of what cites them
receipts      what models were shown, and the marks of people
transfer      export and import of JSONL
repair        a damaged index rebuilt in place, or a damaged file replaced by one with its readable rows
recovery      the rows of a damaged file, copied and counted
lost_sessions sessions whose row is lost: restored from indexes, or put into quarantine
"""
