"""The SQLite database: schema, migrations, queries and the single writer."""
