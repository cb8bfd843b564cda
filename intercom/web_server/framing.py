"""The framing of requests: what is refused before the application sees it, because a proxy may read it differently.

h11 parses requests. It accepts some forms that RFC 9112 does not, or that others do not: what one program takes for a
body is the next request to another. So each request must have one meaning.
"""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus

import h11
from attrs import define, field

from intercom.web_server.http_request import Refusal

#: The longest head of a request, in bytes.
LONGEST_HEAD = 32 * 1024
#: The header of an answer after which the connection is closed.
CLOSE = (b"connection", b"close")

_SPOKEN = (b"1.0", b"1.1")
_HEAD_END = re.compile(rb"\n\r?\n")
#: What h11 accepts in a head, and others may understand differently: a line that continues the one before, an end of a
#: line that is not CR LF, and control characters.
_AMBIGUOUS = re.compile(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([^\r]*)", re.IGNORECASE)
_DIGITS = re.compile(rb"[0-9]{1,15}[ \t]*")

# A new one each time: an exception object that is raised again collects traceback frames.
_bad_request = partial(Refusal, HTTPStatus.BAD_REQUEST, "invalid_arguments", headers=(CLOSE,))
_long_head = partial(
    Refusal,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "request_too_large",
    f"the head of the request, or of a chunk, has more than {LONGEST_HEAD} bytes: send shorter headers",
    (CLOSE,),
)
#: The line before a chunk, and a line of the trailer. h11 accepts more: control characters, lines that continue another
#: or end without CR, and a length in the trailer.
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER_LINE = re.compile(
    rb"(?!(?:content-length|transfer-encoding|host):)[!#$%&'*+.^_`|~0-9a-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n",
    re.IGNORECASE,
)


@define(eq=False)
class ChunkScanner:
    """Checks the framing of one chunked body, as it comes over the wire (RFC 9112, 7.1). h11 reads it afterwards."""

    has_begun: bool = field(init=False, default=False)
    _line: bytes = field(init=False, default=b"")
    _left_in_chunk: int = field(init=False, default=0)
    _in_trailer: bool = field(init=False, default=False)
    _is_over: bool = field(init=False, default=False)

    def check(self, data: bytes) -> None:
        """Check the next bytes. What follows the body is ignored. Raises Refusal if others may read them
        differently."""
        self.has_begun = True
        at = 0
        while at < len(data) and not self._is_over:
            if self._left_in_chunk:
                step = min(self._left_in_chunk, len(data) - at)
                self._left_in_chunk -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > LONGEST_HEAD:
                raise _long_head()
            if self._line.endswith(b"\n"):
                self._end_line(self._line)
                self._line = b""

    def _end_line(self, line: bytes) -> None:
        if self._in_trailer:
            self._is_over = line == b"\r\n"
            if not self._is_over and _TRAILER_LINE.fullmatch(line) is None:
                raise _bad_request(
                    "the trailer of the request has a length, control characters, or a line that continues another or"
                    " does not end with CR LF: send no trailer"
                )
            return
        found = _CHUNK_LINE.fullmatch(line)
        if found is None:
            raise _bad_request(
                "the line before a chunk is not its size in hexadecimal digits and CR LF, or has control characters"
            )
        size = int(found[1], 16)
        self._in_trailer = size == 0
        # h11 requires the CR LF behind the chunk.
        self._left_in_chunk = size and size + 2


_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)


def resolve_target(
    method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the path with the query, and the headers, of a request whose target is not simply a path (RFC 9112, 3.2).
    The host in a URL replaces that in Host. Raises Refusal."""
    if method == b"CONNECT":
        message = "this server is no proxy: it has no CONNECT"
        raise Refusal(HTTPStatus.NOT_IMPLEMENTED, "invalid_arguments", message, (CLOSE,))
    if target == b"*" and method == b"OPTIONS":
        return target, headers
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise _bad_request("the target of the request is neither a path that begins with / nor a URL of http or https")
    host, path, query = found.groups(b"")
    others = (each for each in headers if each[0] != b"host")
    return (path or b"/") + query, [(b"host", host), *others]


def refusal_of(error: h11.RemoteProtocolError) -> Refusal:
    """Return the answer to what h11 does not accept. It repeats nothing of the request."""
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return _long_head()
    if error.error_status_hint == HTTPStatus.NOT_IMPLEMENTED:
        message = "this server knows no Transfer-Encoding but chunked: send the request with that, or with none"
        return Refusal(HTTPStatus.NOT_IMPLEMENTED, "invalid_arguments", message, (CLOSE,))
    return _bad_request("this is not HTTP/1.1: the first line, a header or the length of the request is malformed")


def require_unambiguous(request: h11.Request, received: bytes) -> None:
    """Raise Refusal for a request that a proxy may understand differently (RFC 9112, 11.2): what the proxy takes for
    its body would be read here as the next request. `received` begins with the request's head, as it came."""
    if request.http_version not in _SPOKEN:
        message = "this server speaks HTTP/1.1: send the request with that"
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "invalid_arguments", message, (CLOSE,))
    end = _HEAD_END.search(received)
    assert end is not None, "h11 has found it"
    head = received[: end.end()]
    if len(head) > LONGEST_HEAD:
        raise _long_head()
    if _AMBIGUOUS.search(head) is not None:
        raise _bad_request(
            "the head of the request has control characters, or a line that does not end with CR LF or continues"
            " another: send each header on one line"
        )
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or (lengths and _DIGITS.fullmatch(lengths[0]) is None):
        raise _bad_request("the request has more than one Content-Length, or one that is no number of bytes: send one")
    is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    if is_chunked and (lengths or request.http_version != b"1.1"):
        raise _bad_request(
            "the request says its length twice, by Content-Length and by Transfer-Encoding: send one of them, in"
            " HTTP/1.1"
        )
