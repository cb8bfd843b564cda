"""A file's bytes as lines, and back, without a byte lost.

Patches are text; files are bytes in some encoding. Lines are kept as bytes, so that what a patch does not touch can not
change; only for comparing are they decoded.
"""

from __future__ import annotations

import codecs

from attrs import frozen

BOM = "\ufeff"

#: UTF-32 first: its little-endian mark begins with that of UTF-16.
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@frozen
class Encoding:
    """How a file's bytes are read as text, with a name for people."""

    codec: str
    errors: str
    name: str

    def decode(self, data: bytes) -> str:
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """Raises UnicodeEncodeError for characters that the encoding has not."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape", "utf-8")


def encoding_of(data: bytes) -> Encoding:
    """The encoding of a file: by its byte order mark; UTF-8 where it is valid, or where more lines are valid UTF-8
    than not; else Windows-1252, which holds Latin-1's letters, else Latin-1, in which any byte is a character."""
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
    """The lines of a file, each with its line end (the last may have none); joined, they are `data` again."""
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
