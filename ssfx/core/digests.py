"""Texts that carry the SHA-256 of themselves, so that a digit that flipped, or was edited by hand, is seen on reading.

The digest is a last field of a JSON object, a last element of a JSON list, a last comment of YAML, or, in JSONL, a line
that stands for all lines since the digest before it. Nothing else of the text changes.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any, Literal

KEY = "content_sha256"
Kind = Literal["json", "yaml", "rows"]
"""Ways of carrying a digest: a JSON object or list, YAML, JSONL with lines of digests."""
_FIELD = re.compile(
    r',?(?P<open>\{?)(?:"blessed":"(?P<blessed>[^"]*)",)?"(?:content|row)_sha256":"(?P<digest>[0-9a-f]{64})"\}(?P<list>\]?)'
)
_LONGEST = 200
"""Characters that a digest with all around it takes at most."""
_COMMENT = re.compile(rf"# (?:blessed: (?P<blessed>\S+), )?{KEY}: (?P<digest>[0-9a-f]{{64}})")
_YAML_HEAD = "# Written by ssfx, with a digest in the last line. Without these two lines it is a file of your own.\n"


class Changed(ValueError):
    """A text that is not what its digest was made of."""

    def __init__(self, where: str = "it") -> None:
        super().__init__(f"{where} was changed after it was written: the digest does not match")


def with_digest(text: str, blessed: str = "") -> str:
    """Return the JSON object or list `text` with its digest, without a line break at its end.

    `blessed` is the day on which somebody accepted a change by hand; it becomes part of what the digest covers.
    """
    body = text.strip()
    if not body or body[-1] not in "}]":
        raise ValueError("only a JSON object or list has room for a digest")
    said = f'"blessed":"{blessed}",' if blessed else ""
    field = f'{said}"{KEY}":"{_digest(body, blessed)}"'
    comma = "" if body[:-1].strip() in ("[", "{") else ","
    return f"{body[:-1]}{comma}{field}}}" if body[-1] == "}" else f"{body[:-1]}{comma}{{{field}}}]"


def without_digest(text: str) -> tuple[str, bool]:
    """Return the JSON that `text` was before it got a digest, and whether it has one; Changed if it does not match."""
    body, match = _parts(text)
    if match is None:
        return body, False
    if _digest(body, match["blessed"] or "") != match["digest"]:
        raise Changed
    return body, True


def blessed_on(text: str) -> str:
    """Return the day on which a change by hand of the JSON or YAML `text` was accepted, "" if there was none."""
    match = _parts(text)[1] or _COMMENT.fullmatch(text.strip().rpartition("\n")[2])
    return (match["blessed"] or "") if match else ""


def loads(text: str) -> Any:
    """Return what JSON `text` holds, without its digest; ValueError when it is no JSON or not what was written.

    NaN and infinities are no JSON here, as in the standard.
    """
    body, _ = without_digest(text)
    found = _DECODER.decode(body)
    last = found[-1:] if isinstance(found, list) else [found]
    if last and isinstance(last[0], dict) and KEY in last[0]:
        raise Changed("its digest")
    return found


def digest_line(lines: str) -> str:
    """Return the line of a JSONL file that stands for `lines`, the text since the digest before it."""
    return f'{{"{KEY}":"{_digest(lines, "")}"}}'


def is_digest_line(line: str) -> bool:
    """Return whether a line of a JSONL file is a digest of lines before it."""
    return len(line) < _LONGEST and bool((match := _FIELD.fullmatch(line.strip())) and match["open"] > match["list"])


def check_lines(lines: str, line: str) -> None:
    """Raise Changed when the digest `line` is not that of `lines`, the text since the digest before it."""
    match = _FIELD.fullmatch(line.strip())
    if match is None or _digest(lines, match["blessed"] or "") != match["digest"]:
        raise Changed("a line above")


def yaml_with_digest(text: str, blessed: str = "") -> str:
    """Return YAML `text`, which ends in a line break, with its digest as a comment in the last line.

    The first line says that there is one: of YAML, what is left of a file is a file, too.
    """
    text = text if text.startswith(_YAML_HEAD) else _YAML_HEAD + text
    said = f"blessed: {blessed}, " if blessed else ""
    return f"{text}# {said}{KEY}: {_digest(text, blessed)}\n"


def check_yaml(text: str) -> None:
    """Raise Changed when YAML `text` is not what was written with a digest; what people write has none."""
    body, _, last = text.rstrip().rpartition("\n")
    match = _COMMENT.fullmatch(last)
    if match is None:
        if text.startswith(_YAML_HEAD.rstrip()):
            raise Changed
    elif _digest(body + "\n", match["blessed"] or "") != match["digest"]:
        raise Changed


def blessed(text: str, kind: Kind) -> str:
    """Return `text` with a digest of what it holds now, and the day where it replaces another one.

    ValueError for what is no JSON.
    """
    today = datetime.now(UTC).date().isoformat()
    if kind == "yaml":
        body, _, last = text.rstrip().rpartition("\n")
        body, had = (body + "\n", True) if _COMMENT.fullmatch(last) else (text.rstrip() + "\n", False)
        return yaml_with_digest(body, today if had else "")
    if kind == "json":
        return _blessed_json(text, today) + "\n"
    lines = [line for line in text.split("\n") if line.strip()]
    rows = [line for line in lines if not is_digest_line(line)]
    body = "".join(f"{line}\n" for line in rows)
    for line in rows:
        _DECODER.decode(_parts(line)[0])
    said = f'"blessed":"{today}",' if len(rows) < len(lines) else ""
    return f'{body}{{{said}"{KEY}":"{_digest(body, today if said else "")}"}}\n'


def _blessed_json(text: str, today: str) -> str:
    body, match = _parts(text)
    _DECODER.decode(body)
    if match is not None and _digest(body, match["blessed"] or "") == match["digest"]:
        return text.strip()
    return with_digest(body, today if match else "")


def _parts(text: str) -> tuple[str, re.Match[str] | None]:
    """Return the JSON object or list in `text` as it was before it got a digest, and the match of the digest."""
    whole = text.strip()
    found = [one for one in _FIELD.finditer(whole, max(0, len(whole) - _LONGEST)) if one.end() == len(whole)]
    if not found:
        return whole, None
    last = found[0]
    if last["open"] and not last["list"] and last.start() == 0:
        return "{}", last
    if bool(last["open"]) != bool(last["list"]):
        return whole, None
    return whole[: last.start()] + ("]" if last["list"] else "}"), last


def _digest(body: str, blessed: str) -> str:
    return hashlib.sha256(f"{body}\n{blessed}".encode() if blessed else body.encode()).hexdigest()


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
