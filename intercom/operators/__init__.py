"""The operators' side: the router and its channels."""
