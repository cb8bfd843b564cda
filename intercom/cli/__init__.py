"""The commands people run."""
