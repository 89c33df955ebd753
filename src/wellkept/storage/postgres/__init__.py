"""PostgreSQL: connections, transactions of one user, migrations and roles. `database.py` says how to use it."""
