"""The tools that agents call: one file a tool, with all that it is. `tool_table` lists them."""
