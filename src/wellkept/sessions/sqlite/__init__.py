"""Sessions in SQLite: one file and its indexes. The rules of its rows are in `sessions/rows`.

store         the open file: opening, tidying, erasing deleted bytes; the port, bound to one user
checksums     checksums of message rows: computed where they are missing, and compared with the rows
index         the word index and the list of all words, kept with the rows and rebuilt
index_check   the index compared with the messages
postings      what `sessions.search` reads: posting lists, lengths, texts, metadata
fts5          the tokenizer and query language of the word index, and lists of common words decoded from its pages
semantic      search by vectors, with memory-mapped quantised vectors in a file beside the database
upkeep        trash of all users, statistics of tables, check, reindex, optimise
check         what is wrong with a file, found without writing
repair        a damaged index rebuilt in place, or a damaged file replaced by one with its readable rows
recovery      the rows of a damaged file, copied and counted; sessions whose row is lost, restored or in quarantine
"""
