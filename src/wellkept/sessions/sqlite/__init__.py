"""Sessions in SQLite: one file and its indexes. The rules of its rows are in `sessions/rows`.

store         the open file: opening, tidying, erasing deleted bytes; the port, bound to one user
checksums     checksums of message rows: computed where they are missing, and compared with the rows
index         the word index, kept with the rows and rebuilt · index_check: compared with the messages
spellings     the list of all words as messages spell them, for searches inside of words
postings      what `sessions.search` reads: posting lists, lengths, texts, metadata · fts5: its tokenizer and language
fts5_pages    lists of common words, decoded from the pages of the word index
semantic      search by vectors, with memory-mapped quantised vectors in a file beside the database
upkeep        trash of all users, statistics of tables, check, reindex, optimise
check         what is wrong with a file, found without writing
repair        a damaged index rebuilt in place, or a damaged file replaced by one with its readable rows
recovery      the rows of a damaged file, copied and counted
lost_sessions sessions whose row is lost: restored from indexes, or put into quarantine
"""
