"""Text that agents, files and people wrote, made fit to be read: nothing in it moves a cursor, hides, or reorders.

`visible` is for prose (titles, descriptions, reasons, paths), which every channel shows. `visible_line` is for a line
of a file, where every character matters. It also writes codes for characters that prose may keep, such as an unusual
space. Each function accepts the other's result, and its own. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

#: The characters that both functions inspect. All others are shown unchanged.
_UNUSUAL: Final = re.compile(r"[^\n\t\x20-\x7e\xa1-\xac\xae-\u02ff]")
#: Control, format, surrogate, private and unassigned characters, and two unusual line ends.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMBINING: Final = frozenset({"Mn", "Me"})
#: They join an emoji, or a word in many scripts. Between ASCII characters they are only invisible.
_JOINERS: Final = frozenset("\u200c\u200d")
_JOINER: Final = re.compile("[\u200c\u200d]")
#: Letters and marks without a shape: fillers, the blank braille pattern, the grapheme joiner, two Khmer vowels.
_SHAPELESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_KEYCAP: Final = "\u20e3"
#: Characters with an emoji form that are not symbols by category.
_ALSO_EMOJI: Final = frozenset("\u203c\u2049\u2139\u3030")
#: More accents than this on one letter serve to cover the lines around it.
_ACCENTS: Final = 3
#: Python has no names for control characters.
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
    """Write every invisible or reordering character as its code, such as `\\x1b` or `<U+202E>`.

    Line feeds and tabs stay. With `joiners`, joiners inside emoji and inside words of non-Latin scripts stay too. A DOS
    line end becomes a line feed.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    shown = _UNUSUAL.sub(_in_prose, text)
    return shown if joiners else _JOINER.sub(lambda match: code_of(match.group()), shown)


def one_line(text: str) -> str:
    """Make a text visible on one line: every run of white space becomes one space."""
    return " ".join(visible(text).split())


def visible_line(line: str, found: Callable[[str], object] | None = None) -> str:
    """Write every ambiguous or invisible character in a line of a file as its code.

    A lone surrogate in the range of `surrogateescape` stands for a byte that is not text, and becomes `\\x80`. `found`
    is called with each character that was replaced.
    """
    if line.isascii() and line.isprintable():
        return line

    def shown(match: re.Match[str]) -> str:
        text = _in_code(match)
        if found is not None and text != match.group():
            found(match.group())
        return text

    return _UNUSUAL.sub(shown, line)


@lru_cache(maxsize=16_384)
def code_of(character: str) -> str:
    """Return the code of a character that cannot be shown: `\\x1b`, `<U+202E>`."""
    code_point = ord(character)
    if 0xDC80 <= code_point <= 0xDCFF:
        code_point -= 0xDC00
    return f"\\x{code_point:02x}" if code_point < 0x100 else f"<U+{code_point:04X}>"


def name_of(character: str) -> str:
    """Return the name of a character, for people."""
    if 0xDC80 <= ord(character) <= 0xDCFF:
        return "a byte that is not UTF-8"
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
    # Tag characters carry invisible text.
    if category in _HIDDEN or character in _SHAPELESS or "\U000e0000" <= character <= "\U000e0fff":
        return "hidden"
    return "space" if category == "Zs" else "combining" if category in _COMBINING else "plain"


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\u180b" <= character <= "\u180f"


def _selects_emoji(match: re.Match[str]) -> bool:
    """Whether this selects the emoji or the text form of the symbol before it, or of a keycap."""
    if match.group() not in "\ufe0e\ufe0f":
        return False
    return _is_symbol(_before(match)) or (_before(match) in set("0123456789#*") and _after(match) == _KEYCAP)


def _joins_emoji(match: re.Match[str]) -> bool:
    before = _before(match)
    if before in ("\ufe0e", "\ufe0f"):
        before = match.string[max(0, match.start() - 2) : match.start() - 1]
    return _is_symbol(before) and _is_symbol(_after(match))


def _is_symbol(character: str) -> bool:
    # Skin tones are modifiers by category.
    return bool(character) and (
        unicodedata.category(character) in ("So", "Sm")
        or character in _ALSO_EMOJI
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _is_accent(match: re.Match[str]) -> bool:
    """Whether a combining character follows a letter, with few others between."""
    if match.group() == _KEYCAP:
        return _before(match) == "\ufe0f"
    start = match.start()
    first = start
    while first > 0 and start - first < _ACCENTS and unicodedata.category(match.string[first - 1]) in _COMBINING:
        first -= 1
    if first == 0 or start - first >= _ACCENTS:
        return False
    # This includes vowel signs and letters of scripts with several marks per syllable.
    return unicodedata.category(match.string[first - 1]) in ("Ll", "Lu", "Lt", "Lo", "Lm", "Mc")


def _before(match: re.Match[str]) -> str:
    return match.string[match.start() - 1 : match.start()] if match.start() else ""


def _after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + 1]


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 session`, `2 sessions`. `plural` is that of an irregular noun."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
