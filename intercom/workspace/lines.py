"""Splitting a file's bytes into lines, without losing a byte.

Lines are kept as bytes, so what a patch does not touch cannot change. They are decoded only for comparison.
"""

from __future__ import annotations

import codecs

from attrs import frozen

BOM = "\ufeff"

#: UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@frozen
class Encoding:
    """How a file's bytes are decoded, with a name for people."""

    codec: str
    errors: str
    name: str

    def decode(self, data: bytes) -> str:
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """Encode text. Raises UnicodeEncodeError if the encoding lacks a character."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape", "utf-8")


def encoding_of(data: bytes) -> Encoding:
    """Guess the encoding of a file.

    A byte order mark decides. Else it is UTF-8 if all or most of the non-ASCII lines are valid UTF-8. Else it is
    Windows-1252 if the bytes are valid in that, else Latin-1, in which every byte is a character.
    """
    for mark, codec in _WIDE:
        if data.startswith(mark):
            encoding = Encoding(codec, "surrogatepass", codec)
            if _survives(data, encoding):
                return encoding
    odd = [line for line in data.split(b"\n") if not line.isascii()]
    valid = sum(_decodes(line, "utf-8") for line in odd)
    if valid == len(odd) or valid > len(odd) - valid:
        return UTF8
    if _decodes(data, "cp1252"):
        return Encoding("cp1252", "strict", "windows-1252")
    return Encoding("latin-1", "strict", "latin-1")


def split(data: bytes, encoding: Encoding) -> list[bytes]:
    """Return the lines of a file with their line ends (the last may have none). Joined, they equal `data`."""
    end = encoding.encode("\n")
    if len(end) == 1:
        lines = [line + b"\n" for line in data.split(b"\n")]
        lines[-1] = lines[-1][:-1]
        return lines if lines[-1] else lines[:-1]
    text = encoding.decode(data)
    return [encoding.encode(line) for line in _split_text(text)]


def _split_text(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _survives(data: bytes, encoding: Encoding) -> bool:
    try:
        return encoding.encode(encoding.decode(data)) == data
    except UnicodeError:
        return False
