"""A client's permission hook: one short process for each thing the client is about to do. Standard library only."""
