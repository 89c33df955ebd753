"""Sessions in SQLite: one file, its rows and its indexes.

store       the port; each method one short transaction on what stands below
file        the open database · rows, life, context, notes: tables of messages, sessions, contexts, small facts
indexing    rows to index and back · index, reindex: the two full-text indexes
search      a question answered · terms, postings, beginnings, candidates: who is ranked · conditions, phrases: what
            an explicit query demands · filters, wording, alikeness: what counts beside the words
meaning     search by vectors · vectors: their table · matrix, shelf: short forms of all of them
keeping     whole conversations · purge, tidying, erasing: rows, pages and bytes given back
forgetting  removal for good · citations: who else shows it · tombstones: so that no import brings it back
transfer    export · importing
checkup     what is wrong · healing: derived parts made anew · repair, salvage: a damaged file
"""
