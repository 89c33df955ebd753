"""Sessions on PostgreSQL: the store, its search index of packed posting lists, and the search port."""
