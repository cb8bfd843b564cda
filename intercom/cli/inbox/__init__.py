"""The inbox: what waits for a person, on a full screen of a terminal.

`board` holds the rules, `feed` brings the cards, `card_rows` makes the text of a card and `pages` all other text,
`panes` draw it, and `app` puts them together. Only `app`, `panes`, `entry` and `terminal` import Textual.
"""
