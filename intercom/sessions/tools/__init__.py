"""The tools that agents call: one file a tool, with all that it is. `table` lists them."""
