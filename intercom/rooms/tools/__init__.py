"""The tools of rooms: their arguments, their answers, and what models read about them. `room_tool_table` lists them."""
