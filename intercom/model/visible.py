"""Text that agents, files and people wrote, made fit to be read: nothing in it moves a cursor, hides, or reorders.

`visible` is for prose (titles, descriptions, reasons, paths), which every channel shows. `visible_line` is for a line
of a file, where a reader has to see every character that counts: it also gives codes to what prose may keep, such as
a space that is no space. What either returns is safe for the other, and safe to be made visible once more. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

#: What both functions have to look at; everything else shows as it is.
_UNUSUAL: Final = re.compile(r"[^\n\t\x20-\x7e\xa1-\xac\xae-\u02ff]")
#: Control, format, surrogate, private and unassigned characters, and the two odd line ends.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMBINING: Final = frozenset({"Mn", "Me"})
#: They hold an emoji or a word of many scripts together; between plain letters they only hide.
_JOINERS: Final = frozenset("\u200c\u200d")
_JOINER: Final = re.compile("[\u200c\u200d]")
#: Letters and marks without a shape: fillers, the blank braille cell, the joiner of graphemes, two Khmer vowels.
_SHAPELESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_KEYCAP: Final = "\u20e3"
#: Characters that are no symbols by category and have an emoji form all the same.
_ALSO_EMOJI: Final = frozenset("\u203c\u2049\u2139\u3030")
#: More accents on one letter than this were put there to cover the lines around.
_ACCENTS: Final = 3
#: Python knows no names for control characters.
_CONTROLS: Final = {
    "\x00": "null",
    "\x07": "bell",
    "\x08": "backspace",
    "\x0b": "vertical tab",
    "\x0c": "form feed",
    "\r": "carriage return",
    "\x1b": "escape",
    "\x7f": "delete",
}


def visible(text: str, *, joiners: bool = True) -> str:
    """`text` with every character that a reader would not see, or that reorders its neighbours, written as its code.

    Line feeds and tabs stay; so do, with `joiners`, those within emoji and within words of scripts that need them. A
    line end of DOS becomes a line feed. Escape becomes `\\x1b`, a right-to-left override `<U+202E>`.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    shown = _UNUSUAL.sub(_in_prose, text)
    return shown if joiners else _JOINER.sub(lambda match: code_of(match.group()), shown)


def one_line(text: str) -> str:
    """`visible`, on one line: every run of white space is one space."""
    return " ".join(visible(text).split())


def visible_line(line: str, found: Callable[[str], object] | None = None) -> str:
    """A line of a file with every character written as its code that a reader could take for another or for nothing.

    A lone surrogate in the range of `surrogateescape` is a byte that is no text, and becomes `\\x80`. `found` is told
    each character that was written as its code.
    """
    if line.isascii() and line.isprintable():
        return line

    def shown(match: re.Match[str]) -> str:
        text = _in_code(match)
        if found is not None and text != match.group():
            found(match.group())
        return text

    return _UNUSUAL.sub(shown, line)


def code_of(character: str) -> str:
    """How a character is written that cannot be shown: `\\x1b`, `<U+202E>`."""
    code_point = ord(character)
    if 0xDC80 <= code_point <= 0xDCFF:
        code_point -= 0xDC00
    return f"\\x{code_point:02x}" if code_point < 0x100 else f"<U+{code_point:04X}>"


def name_of(character: str) -> str:
    """What a character is called, for people."""
    if 0xDC80 <= ord(character) <= 0xDCFF:
        return "a byte that is no UTF-8"
    known = _CONTROLS.get(character) or unicodedata.name(character, "").lower()
    return known or "control character" if unicodedata.category(character) == "Cc" else known or "no character"


def _in_prose(match: re.Match[str]) -> str:
    character = match.group()
    match _kind(character):
        case "hidden":
            return code_of(character)
        case "joiner":
            before = _before(match)
            return character if before and not before.isascii() and before not in _JOINERS else code_of(character)
        case "selector":
            return character if _selects_emoji(match) else code_of(character)
        case _:
            return character


def _in_code(match: re.Match[str]) -> str:
    character = match.group()
    match _kind(character):
        case "plain":
            return character
        case "joiner":
            return character if character == "\u200d" and _joins_emoji(match) else code_of(character)
        case "selector":
            return character if _selects_emoji(match) else code_of(character)
        case "combining":
            return character if _is_accent(match) else code_of(character)
        case _:
            return code_of(character)


@lru_cache(maxsize=16_384)
def _kind(character: str) -> str:
    if character in _JOINERS:
        return "joiner"
    if _is_selector(character):
        return "selector"
    category = unicodedata.category(character)
    # Tags carry text that nobody sees.
    if category in _HIDDEN or character in _SHAPELESS or "\U000e0000" <= character <= "\U000e0fff":
        return "hidden"
    return "space" if category == "Zs" else "combining" if category in _COMBINING else "plain"


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\u180b" <= character <= "\u180f"


def _selects_emoji(match: re.Match[str]) -> bool:
    """Whether this asks for the emoji or the text form of the symbol before it, or of the key it stands in."""
    if match.group() not in "\ufe0e\ufe0f":
        return False
    return _is_symbol(_before(match)) or (_before(match) in set("0123456789#*") and _after(match) == _KEYCAP)


def _joins_emoji(match: re.Match[str]) -> bool:
    before = _before(match)
    if before in ("\ufe0e", "\ufe0f"):
        before = match.string[max(0, match.start() - 2) : match.start() - 1]
    return _is_symbol(before) and _is_symbol(_after(match))


def _is_symbol(character: str) -> bool:
    # The colours of skin are modifiers.
    return bool(character) and (
        unicodedata.category(character) in ("So", "Sm")
        or character in _ALSO_EMOJI
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _is_accent(match: re.Match[str]) -> bool:
    """Whether a combining character stands on a letter, and not on a heap of others."""
    if match.group() == _KEYCAP:
        return _before(match) == "\ufe0f"
    start = match.start()
    first = start
    while first > 0 and start - first < _ACCENTS and unicodedata.category(match.string[first - 1]) in _COMBINING:
        first -= 1
    if first == 0 or start - first >= _ACCENTS:
        return False
    # Vowel signs and letters of scripts whose syllables are written with several marks.
    return unicodedata.category(match.string[first - 1]) in ("Ll", "Lu", "Lt", "Lo", "Lm", "Mc")


def _before(match: re.Match[str]) -> str:
    return match.string[match.start() - 1 : match.start()] if match.start() else ""


def _after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + 1]
