"""No damaged file gives a traceback, and no half-written one another value: it is refused in one line, or set aside."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from results.kept import Kept, every_kind

from ssfx.core.errors import SsfxError
from ssfx.core.files import loads
from ssfx.lab.results import step_logs

SEED = 20261124
MUTATIONS = 200
"""Of every kind of file."""
OTHER_JSON = (b"[]", b"{}", b"null", b"3", b'"text"', b"[[[1]]]", b'{"a": 1}', b"[" * 100_000, b"[null, 1]")
ASIDE = {
    "heartbeat": lambda found: found is None,
    "failure": lambda found: "cannot be read" in found[1]["error"],
    "records": lambda found: all(isinstance(one, dict) for one in found),  # of a live log: progress, and in no row
    "drawn": lambda found: found == {},
    "checkpoint": lambda found: found[0] == 2 and len(found[1]) == 1,
    "state": lambda found: found[0] == 2 and len(found[1]) == 1,
}
"""Kinds that are set aside, and how that looks: nothing, an earlier one, or a word about it."""
SEALED = ("steps0", "steps1", "digests of steps", "state", "cache", "cache digests")
"""Kinds with a checksum: no change of theirs is another value."""
LINES = ("reference",)
"""Kinds of which a part is a file, too: git holds them."""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Kept]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return every_kind(tmp_path)


def mutated(content: bytes, random_: random.Random) -> bytes | None:
    """Return a damaged `content`, None for a directory in its place."""
    at = random_.randrange(len(content))
    digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    match random_.choices(range(9), (6, 3, 3, 2, 3, 1, 2, 2, 1))[0]:
        case 0 if digits:
            at = random_.choice(digits)
            other = random_.choice([digit for digit in b"0123456789" if digit != content[at]])
            return content[:at] + bytes([other]) + content[at + 1 :]
        case 1:
            return content[:at] + bytes([content[at] ^ (1 << random_.randrange(8))]) + content[at + 1 :]
        case 2:
            return content[:at]
        case 3:
            return content[:at] + b"\xff\xfe" + content[at:]
        case 4:
            return random_.choice(OTHER_JSON)
        case 5:
            return None
        case 6:
            lines = content.splitlines(keepends=True)
            del lines[random_.randrange(len(lines))]
            return b"".join(lines)
        case 7:
            end = min(len(content), at + random_.randrange(1, 40))
            return content[:at] + content[end:]
    return content[:at] + bytes(random_.randrange(256) for _ in range(20)) + content[at:]


def put(path: Path, content: bytes | None) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    if content is None:
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def outcome(name: str, one: Kept, right: object, half_written: bool) -> str:
    """Return what became of reading a damaged file: "right", "refused", "aside" or "other"; else the test fails."""
    try:
        found = one.read()
    except SsfxError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert one.path.name in refusal or one.path.parent.name in refusal
        assert "\n" not in refusal
        assert len(refusal) < 2000
        return "refused"
    if found == right:
        return "right"
    if name in ASIDE and ASIDE[name](found):
        return "aside"
    assert name not in SEALED, f"silently another value: {str(found)[:300]}"
    assert name in LINES or not half_written, f"{name}: half of it is another value: {str(found)[:300]}"
    return "other"


def test_thousands_of_damaged_files_are_read_right_refused_or_set_aside(kept):
    random_ = random.Random(SEED)
    counted: Counter[str] = Counter()
    for name, one in kept.items():
        right, content = one.read(), one.path.read_bytes()
        for _ in range(MUTATIONS):
            damaged = mutated(content, random_)
            put(one.path, damaged)
            try:
                half_written = damaged is not None and content.startswith(damaged)
                counted[outcome(name, one, right, half_written)] += 1
            except Exception as error:
                error.add_note(f"{name}: {damaged!r:.600}")
                raise
            put(one.path, content)
        assert one.read() == right
    assert counted.total() >= 2_000
    assert counted["other"] < 0.2 * counted.total()  # another digit, or another word, is a file like the first


IMPOSSIBLE = (-1e-9, -3, float("nan"), float("inf"), "1e400", "text", None, [], {})


def impossible(text: str, random_: random.Random) -> Iterator[str]:
    """Yield texts in which one time cannot be, or a curve goes backwards; `text` is JSON, or its first line is."""
    lines = text.split("\n")
    number = next(i for i, line in enumerate(lines) if line.strip())
    whole = text if text.lstrip()[0] in "{[" and _is_json(text) else None
    body = whole if whole is not None else lines[number]
    raw = loads(body)
    places = list(times(raw))
    for holder, key in random_.sample(places, min(12, len(places))):
        before = holder[key]
        for value in random_.sample(IMPOSSIBLE, 3):
            if value is None and key not in range(100):
                continue  # of a field, null is a value that is missing
            holder[key] = value
            changed = json.dumps(raw).replace('"1e400"', "1e400")
            yield changed if whole is not None else "\n".join([*lines[:number], changed, *lines[number + 1 :]])
        holder[key] = before
    for curve in curves(raw):
        for name in ("sizes", "seconds"):
            if len(curve.get(name, ())) > 1:
                before = curve["sizes"]
                curve["sizes"] = before[::-1]
                yield json.dumps(raw)
                curve["sizes"] = before


def _is_json(text: str) -> bool:
    try:
        loads(text)
    except ValueError:
        return False
    return True


def times(raw: object, timed: bool = False) -> Iterator[tuple[dict | list, str | int]]:
    """Yield where the seconds are: holder and key."""
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in items:
        its = timed or (isinstance(key, str) and (key.endswith("_s") or key in ("seconds", "sizes")))
        if its and isinstance(value, int | float) and not isinstance(value, bool):
            yield raw, key
        yield from times(value, its)


def curves(raw: object) -> Iterator[dict]:
    for value in raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else ():
        if isinstance(value, dict) and "sizes" in value:
            yield value
        yield from curves(value)


KINDS_OF_TIMES = ("steps0", "result1", "profile", "costs", "row", "network", "compressors", "own profile")


def test_what_cannot_be_is_refused(kept):
    random_ = random.Random(SEED)
    count = 0
    for name in KINDS_OF_TIMES:
        one = kept[name]
        content = one.path.read_text()
        for text in impossible(content, random_):
            put(one.path, text.encode())
            if name == "steps0":
                one.path.with_name(step_logs.NAME).unlink(missing_ok=True)
            with pytest.raises(SsfxError) as caught:
                pytest.fail(f"{name}: {text[:300]} was read as {one.read()}")
            assert one.path.name in str(caught.value)
            assert "\n" not in str(caught.value)
            count += 1
        put(one.path, content.encode())
    assert count > 100
