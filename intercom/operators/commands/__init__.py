"""Operator commands: what people can ask for and decide, the same on every channel.

`command_table` has the rows (name, arguments, help, who may send it), `command_handlers` the work, and `json_forms` the
JSON form of answers.
"""
