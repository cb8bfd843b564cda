"""Intercom: the switchboard between coding agents and the people responsible for them."""
