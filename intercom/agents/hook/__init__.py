"""A client's permission hook: one short process for each operation of the client. Standard library only."""
