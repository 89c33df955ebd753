"""Sessions in SQLite: one file, its rows and its indexes.

store       the port; each method one short transaction on what stands below
file        the open database · rows, life, context, notes: tables of messages, sessions, contexts, small facts
index       the word index and the substring index: kept with the rows, checked, rebuilt
postings    what `sessions.search` reads: posting lists, lengths, texts, metadata
semantic    search by vectors · vectors: their table · vector_cache: memory-mapped quantised vectors of all messages
keeping     whole conversations · purge, tidying, erasing: rows, pages and bytes given back
forgetting  removal for good · citations: who else shows it · tombstones: so that no import brings it back
transfer    export · importing
checkup     what is wrong · healing: derived parts made anew · repair, salvage: a damaged file
"""
