"""The people's side: the router and its channels."""
