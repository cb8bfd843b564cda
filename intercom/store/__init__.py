"""The database: schema, migrations, queries, and the one writer."""
