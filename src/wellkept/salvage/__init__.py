"""Reading a damaged SQLite file without SQLite: its pages, its log, and the rows that they still hold."""
