"""Operator commands: what people can ask for and decide, the same on every channel.

`table` has the rows (name, arguments, help, who may send it). The other modules have the work, one file for each topic.
"""
