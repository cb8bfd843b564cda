"""What no outsider may be told: what an answer must look like, whatever was asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from intercom.model.errors import ERROR_CODES

_SOURCES = str(Path(__file__).resolve().parents[2])
#: Tracebacks, our files, exceptions by the names of their classes, objects by their addresses.
_INSIDES = re.compile(
    r"Traceback|File \"|site-packages|\.py\b|\b[A-Z]\w*(?:Error|Exception|Group)\b|<[\w.]+ object|0x[0-9a-f]{8}"
    rf"|pydantic|{re.escape(_SOURCES)}"
)
#: Codes that say that the fault is ours.
OURS = ("mcp", "unavailable", "busy", "db")

#: The longest sentence that helps anybody.
_LONGEST = 4000


def shows_no_insides(said: Any) -> None:
    """An answer tells of what was wrong, never how the program is built."""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    found = _INSIDES.search(text)
    assert found is None, f"{found.group()!r} in {text[:2000]}"


def is_fair_error(content: dict[str, Any]) -> None:
    """The one shape of every tool's error, with a documented code that does not blame us, and a sentence."""
    assert set(content) >= {"status", "error_code", "error_message"}, content
    assert content["error_code"] in ERROR_CODES, content
    assert content["error_code"] not in OURS, content
    sentence = content["error_message"]
    assert sentence, content
    assert len(sentence) < _LONGEST, len(sentence)
    assert not sentence.endswith("."), sentence
    shows_no_insides(content)


def is_fair_result(answer: dict[str, Any], schema: dict[str, Any] | None) -> None:
    """An answer to tools/call: a result that fits the tool's published schema, or an error that says what to do."""
    assert answer.get("jsonrpc") == "2.0", answer
    if "error" in answer:
        is_fair_refusal(answer)
        return
    result = answer["result"]
    content = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == content
    if result.get("isError"):
        is_fair_error(content)
        return
    assert schema is not None, f"a tool that does not exist answered {content}"
    fault = next(Draft202012Validator(schema).iter_errors(content), None)
    assert fault is None, f"{fault.message[:500] if fault else ''} in {content}"


def is_fair_refusal(answer: dict[str, Any]) -> None:
    """A JSON-RPC error: a number and a sentence, no insides."""
    error = answer["error"]
    assert isinstance(error["code"], int), answer
    assert error["message"], answer
    assert len(json.dumps(error)) < _LONGEST, len(json.dumps(error))
    shows_no_insides(error)
