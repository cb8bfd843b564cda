"""The inbox: what waits for a person, on a full screen of a terminal.

`board` holds the rules, `card_lines` makes the text of a card, `panes` draw it, and `app` puts them together. Only
`app` and `panes` import Textual.
"""
