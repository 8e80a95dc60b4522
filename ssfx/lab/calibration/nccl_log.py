"""What nccl-tests and rccl-tests print: sizes and times of one collective, and on what.

A row says the same thing several times (bytes, microseconds and both bandwidths), so that a row with a wrong digit, or
of another number of ranks, is seen.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.perf_model.exchange_tables import COLLECTIVES

OTHERS = ("all_reduce_bias", "broadcast", "reduce", "gather", "scatter", "hypercube", "alltoallv")
"""Programs of both suites that nothing here is priced by."""
TYPES = re.compile(r"(?:u?int(?:8|32|64)|half|float\d*|double|bfloat16|bf16|f(?:p|loat)?8_?\w*)")
"""How data types are called."""
_RANK = re.compile(
    r"\bRank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(?P<pid>\d+)\s+on\s+(?P<host>\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*"
    r"(?P<name>[^#\n]*)"
)
_PROGRAM = re.compile(rf"\b({'|'.join((*COLLECTIVES, *sorted(OTHERS, key=len, reverse=True)))})_perf")
_LIBRARY = re.compile(r"\b(R?NCCL|RCCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_CODE = re.compile(r"nccl-library=(\d{4,6})")
_PLACED = re.compile(r"\bnranks\s+(?P<ranks>\d+)\s+nnodes\s+(?P<nodes>\d+)", re.IGNORECASE)
_START = re.compile(r"#\s*(?:nThread|Collective test starting)")
_PREFIX = re.compile(r"^\s*\[[\d,]+\]<std(?:out|err)>:|\x1b\[[0-9;]*m")
_CLOSE = 0.03
"""A row's bandwidths may be so far from its bytes and time, beside the last digit that is printed."""
_DIGIT = 0.011
_APART = 3.0
"""Times of a row in place and out of place that differ more than so often are worth a word."""


@dataclass
class Log:
    """One collective on some ranks. `ranks_per_node` 0: the log does not say; `us` has the times of each size."""

    collective: str
    ranks: int
    ranks_per_node: int = 0
    device: str = ""
    library: str = ""
    us: dict[int, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def points(self) -> tuple[tuple[int, float], ...]:
        """Return size and median time, by size."""
        return tuple((size, median(times)) for size, times in sorted(self.us.items()))


@dataclass(frozen=True)
class _Row:
    size: int
    redop: str
    places: tuple[tuple[float, float, float, str], ...]
    """Time in microseconds, algorithm and bus bandwidth, wrong results; out of place first, then in place."""


def looks_like_log(text: str) -> bool:
    """Return whether `text` is of nccl-tests or rccl-tests, as far as a glance tells."""
    return "busbw" in text.lower() or bool(_PROGRAM.search(text)) or "Avg bus bandwidth" in text


def logs_of(text: str, name: str) -> list[Log]:
    """Return the logs that `text` holds, `name` being what its file is called; ConfigError where there is none."""
    found = list(_of_text(text, name))
    if not found:
        raise ConfigError(f"{name} has no row of {', '.join(COLLECTIVES)} as nccl-tests prints them")
    return found


def _of_text(text: str, name: str) -> Iterator[Log]:
    """Yield a log for every test that printed rows; a test begins with its header."""
    program = _named(name)
    library, section = "", _Section(program)
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw)
        if _START.search(line) and section.rows:
            if log := section.log(name):
                yield log
            section = _Section(program)
        if programs := _PROGRAM.findall(line):
            program = section.program = programs[-1]
            if section.rows and "concluded" not in line:  # the next command of a script
                section.program = section.asked
        library = _library(line) or library
        section.library = library or section.library
        section.read(line)
    if log := section.log(name):
        yield log


def _named(name: str) -> str:
    """Return the program that the name of a file tells of, "" where it tells of none."""
    if found := _PROGRAM.findall(name):
        return str(found[0])
    return next((one for one in COLLECTIVES if one in name.lower().replace("-", "_")), "")


def _library(line: str) -> str:
    if code := _CODE.search(line):
        number = int(code[1])
        big = 10_000 if number >= 10_000 else 1000
        return f"NCCL {number // big}.{number % big // 100}.{number % 100}"
    if match := _LIBRARY.search(line):
        return f"{match[1].upper().replace('RNCCL', 'RCCL')} {match[2]}"
    return ""


class _Section:
    """One test on its way through the text."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.asked = program
        self.library = ""
        self.rows: list[_Row] = []
        self.ranks: dict[int, tuple[str, str, str]] = {}
        self.twice = False
        self.placed: tuple[int, int] | None = None
        self.unread = 0

    def read(self, line: str) -> None:
        if match := _RANK.search(line):
            here = (match["host"], match["pid"], match["name"].strip())
            rank = int(match["rank"])
            self.twice |= self.ranks.get(rank, here)[:2] != here[:2]
            self.ranks[rank] = here
        elif match := _PLACED.search(line):
            self.placed = int(match["ranks"]), int(match["nodes"])
        elif row := _row(line):
            if not self.rows:
                self.asked = self.program
            self.rows.append(row)
        elif _like_a_row(line):
            self.unread += 1

    def log(self, name: str) -> Log | None:
        """Return the log of the test, None for a test of another collective or without rows."""
        if not self.rows:
            return None
        if self.twice:
            raise ConfigError(
                f"{name}: several processes call themselves rank 0, so each ran alone; build nccl-tests with MPI=1"
            )
        hosts = Counter(host for host, _, _ in self.ranks.values())
        ranks, per_node = len(self.ranks), 0
        if ranks and sorted(self.ranks) != list(range(ranks)):
            ranks = max(self.ranks) + 1  # some lines are missing, so that nothing is known of nodes
        elif hosts:
            if len(set(hosts.values())) > 1:
                few, many = min(hosts.values()), max(hosts.values())
                raise ConfigError(f"{name}: nodes have {few} to {many} ranks; test with the same number on each")
            per_node = next(iter(hosts.values()))
        elif self.placed:
            ranks, nodes = self.placed
            per_node = ranks // nodes if nodes and ranks % nodes == 0 else 0
        devices = {device for _, _, device in self.ranks.values() if device}
        log = _log(self.asked, ranks, per_node, " and ".join(sorted(devices)), self.library, self.rows, name)
        if log and self.unread:
            log.notes.append(f"{self.unread} rows of {name} could not be read and are left out")
        return log


def _row(line: str) -> _Row | None:
    words = line.split()
    for at in range(len(words) - 6):
        if words[at].isdecimal() and words[at + 1].isdecimal() and TYPES.fullmatch(words[at + 2]):
            if max(len(words[at]), len(words[at + 1])) > 15:
                return None
            size, count = int(words[at]), int(words[at + 1])
            return _places(size, words[at + 3 :]) if _whole(size, count) else None
    return None


def _whole(size: int, count: int) -> bool:
    """Return whether a size is as many bytes for each of `count` elements."""
    return size % count == 0 if count else size == 0


def _like_a_row(line: str) -> bool:
    words = line.split()
    return any(TYPES.fullmatch(word) for word in words) and sum(word[:1].isdecimal() for word in words) > 5


def _places(size: int, words: Sequence[str]) -> _Row | None:
    """Return the row of what stands behind the data type: redop, root and, once or twice, time and bandwidths."""
    redop = "" if _number(words[0]) is not None else words[0]
    rest = list(words[1:] if redop else words)
    if len(rest) % 4 == 1:
        rest = rest[1:]  # the root
    width = {4: 4, 8: 4, 16: 8}.get(len(rest))
    if width is None:
        return None
    places = []
    for start in range(0, len(rest), width):
        numbers = [_number(word) for word in rest[start : start + 3]]
        if any(number is None for number in numbers):
            if all(word == "N/A" for word in rest[start : start + 3]):
                places.append((0.0, 0.0, 0.0, ""))
                continue
            return None
        time, algbw, busbw = (number or 0.0 for number in numbers)
        places.append((time, algbw, busbw, rest[start + 3]))
    return _Row(size, redop, tuple(places))


def _number(word: Any) -> float | None:
    try:
        found = float(word)
    except (TypeError, ValueError):
        return None
    return found if isfinite(found) else None


# ---- rows to a log --------------------------------------------------------------------------------------------------


def _log(
    program: str, ranks: int, per_node: int, device: str, library: str, rows: Sequence[_Row], name: str
) -> Log | None:
    """Return the log of rows, checked; None for a collective that nothing is priced by."""
    if program in OTHERS:
        return None
    pairs = sorted(((algbw, busbw) for row in rows for _, algbw, busbw, _ in row.places if algbw >= 0.5), reverse=True)
    ratio = median(busbw / algbw for algbw, busbw in pairs[:7]) if pairs else None
    program = program or _program_by(rows, ratio, name)
    if program not in COLLECTIVES:
        return None
    by_ratio = _ranks_by(program, ratio)
    ranks = ranks or by_ratio
    if ranks < 2:
        what = "one rank exchanges nothing" if ranks == 1 else "how many ranks were tested is not in it"
        raise ConfigError(f"{name}: {what}; import the whole log of a test with several, its list of devices included")
    if ratio is not None and abs(ratio - _factor(program, ranks)) > _CLOSE * _factor(program, ranks):
        raise ConfigError(
            f"{name}: busbw is {ratio:.3g} times algbw; {program} on {ranks} ranks has {_factor(program, ranks):.3g}"
            f"{f', as {by_ratio} ranks have it' if by_ratio else ''}; the log is of another collective or cut together"
        )
    log = Log(program, ranks, per_node if per_node and ranks % per_node == 0 else 0, device, library)
    in_place_first = program == "all_reduce"  # as torch.distributed calls them
    odd, wrong, apart = [], 0, []
    for row in rows:
        order = reversed(row.places) if in_place_first else row.places
        timed = [one for one in order if one[0] > 0]
        if row.size <= 0 or not timed:
            continue
        if not all(_agrees(row.size, one, program, ranks) for one in timed):
            odd.append(row.size)
            continue
        if len(timed) > 1 and max(timed[0][0], timed[1][0]) > _APART * min(timed[0][0], timed[1][0]):
            apart.append(row.size)
        wrong += any((_number(one[3]) or 0) >= 1 for one in timed)  # old versions print a relative error
        log.us.setdefault(row.size, []).append(timed[0][0])
    if odd:
        some = ", ".join(map(str, odd[:3]))
        log.notes.append(
            f"{len(odd)} rows of {name} whose bandwidth is not their bytes by their time are left out: {some}"
        )
    if wrong:
        log.notes.append(f"{wrong} rows of {name} report wrong results; their times are kept")
    if apart:
        log.notes.append(f"{name}: in place and out of place differ more than {_APART:g} times at {apart[0]} bytes")
    if len(log.us) < 2:
        raise ConfigError(f"{name} has {len(log.us)} sizes of {program} that can be used; a table needs two at least")
    return log


def _factor(program: str, ranks: int) -> float:
    if program == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if program == "sendrecv" else (ranks - 1) / ranks


def _agrees(size: int, place: tuple[float, float, float, str], program: str, ranks: int) -> bool:
    """Return whether bytes, time and both bandwidths of a row are those of one exchange, as far as printed."""
    time_us, algbw, busbw, _ = place
    true = 1e-3 * size / time_us
    # Times are printed with 3 digits at least, and bytes of a part may be rounded down to 16.
    slack = _CLOSE + (16 * ranks / size if program != "all_reduce" else 0.0)
    alike = abs(algbw - true) <= slack * true + _DIGIT
    return alike and abs(busbw - _factor(program, ranks) * algbw) <= _CLOSE * busbw + 2 * _DIGIT


def _ranks_by(program: str, ratio: float | None) -> int:
    """Return the ranks that a ratio of bandwidths is of, 0 where it tells none: of all_reduce, only up to 16."""
    if ratio is None or program == "sendrecv":
        return 0
    share = ratio / 2 if program == "all_reduce" else ratio
    ranks = round(1 / (1 - share)) if share < 0.95 else 0
    return ranks if ranks > 1 and abs((ranks - 1) / ranks - share) < 0.004 else 0


def _program_by(rows: Sequence[_Row], ratio: float | None, name: str) -> str:
    """Return the collective that rows can only be of; ConfigError where they may be of several."""
    reduces = any(row.redop not in ("", "none") for row in rows)
    if ratio is not None and reduces and ratio > 1.02:
        return "all_reduce"
    if ratio is not None and reduces and ratio < 0.98:
        return "reduce_scatter"
    raise ConfigError(
        f"{name} does not say which collective was tested; rename it to PROGRAM_perf.log, as all_gather_perf.log"
    )
