"""The tools of rooms: their arguments, their answers, and what models read about them. `table` lists them."""
