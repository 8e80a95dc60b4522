"""The eight lines of an answer, each a sentence about one fact: one table of labels and sentences."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ssfx.advice.answer import ROUNDS, WORTH, Answer
from ssfx.advice.ranked import Entry
from ssfx.core.numbers import rounded
from ssfx.core.spec import name_of
from ssfx.schemes import schemes

WIDTH = 100
LABEL = 10
WORDS = {
    "ddp_fp16": "16-bit sums",
    "hierarchical_fp16": "16 bits, nodes first",
    "ddp_bf16": "16-bit messages",
    "ddp_quantized": "8-bit sums",
    "ddp_4bit": "4-bit sums",
    "ddp_1bit": "1-bit sums",
    "per_tensor": "dgc",
}
"""What a method is called beside its name."""


def first_screen(answer: Answer) -> list[tuple[str, str]]:
    """Return what was asked, the facts by their labels, and what to beware of, each with what stands before it."""
    precision = f" x {answer.accumulate}" if answer.accumulate > 1 else ""
    precision += "" if answer.precision == "fp32" else f" in {answer.precision}"
    shared = f", {answer.sharding}" if answer.sharding else ""
    what = (
        f": {answer.devices} x {answer.device}, {answer.network}, batch {answer.batch_size} each{precision}{shared}, "
        f"density {answer.density:g} (simulated)"
    )
    asked = f"{answer.model} on {answer.cluster}{what}"
    if len(asked) > WIDTH:  # its options are in what follows
        asked = f"{answer.model} on {answer.cluster.partition('(')[0]}{what}"
    return [("", asked), *labelled(facts(answer)), *(("", f"beware: {one}") for one in answer.cautions)]


def labelled(said: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each line of the sentences with what stands before it: the label, or blanks below it."""
    for label, text in said.items():
        for below, part in enumerate(text.split("\n")):
            yield f"{'' if below else label:{LABEL}}", part


def wrapped(first: str, text: str, width: int = WIDTH) -> str:
    """Return what stands before a line, and the line, in lines of at most `width` characters."""
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * LABEL, break_on_hyphens=False)


def as_text(lines: Sequence[tuple[str, str]]) -> str:
    """Return the lines wrapped at WIDTH characters."""
    return "\n".join(wrapped(*line) for line in lines)


def facts(answer: Answer) -> dict[str, str]:
    """Return the eight sentences by their labels, the most important first; another where a step was measured."""
    return {
        answer.answer.upper(): _verdict(answer),
        **({"MEASURED": answer.measured} if answer.measured else {}),
        "NOW": _now(answer),
        **({"TO WIN": _to_win(answer)} if answer.alone_is_faster else {"FREE": _free(answer)}),
        "FASTER": _faster(answer),
        "QUALITY": _quality(answer),
        "FITS": answer.memory or "memory of hosts is not counted",
        "SURE?": answer.error.said if answer.error else "times of such steps were never checked",
        "MORE": "--all  --plot  --why  --quality  --sources  --page FILE.html  --json",
    }


def evidence(answer: Answer) -> dict[str, str]:
    """Return what --quality has first: when rounds are sooner, and what others published, by their labels."""
    found = {"ROUNDS": _rounds(answer) if answer.rounds else (), "PUBLISHED": _published(answer)}
    return {label: text for label, lines in found.items() if (text := "\n".join(lines))}


def words(step: Entry) -> str:
    """Return what people call a method; of one that chooses, with what it chose."""
    chose = f" ({', '.join(dict.fromkeys(map(name_of, step.compressors)))})" if schemes[step.scheme].chooses else ""
    return WORDS.get(step.name, step.name) + chose


def times(value: float) -> str:
    """Return a factor, as people write it: 1.83x, 21x."""
    return f"{rounded(value, 3 if value < 2 else 2)}x"


def worth(devices: int, device: str, work: float) -> str:
    """Return how many devices' work all of them do."""
    return f"{devices} {'ranks' if device == 'cpu' else 'GPUs'} do the work of {rounded(work, 2)}"


def _verdict(answer: Answer) -> str:
    best, free = answer.best, f"a free network saves {answer.most:.0%}"
    if answer.alone_is_faster:
        by = f", {times(1 / best.work)} as with {words(best)}" if best else ""
        both = "both" if answer.devices == 2 else f"all {answer.devices}"
        torch = f"torch's {'sharding' if answer.sharding else 'DDP'}"
        said = f"one {answer.device} alone is {times(1 / answer.now.work)} as fast as {both} with {torch}{by}"
        return said if len(said) <= WIDTH - LABEL else said.replace("torch's ", "").replace(" as with ", " by ")
    if best is None and answer.known.work < 1:
        return f"all {answer.devices} do less than one would, if it held the model; {free}"
    if best is None:
        return f"no method of recorded quality and checked times compresses here; {free}"
    if answer.answer == "no":
        title = answer.dense.trial.title.removesuffix(" buckets")
        return f"tuned dense ({title}) is as fast: {words(best)} {times(best.vs_dense)}; {free}"
    unit, scale = ("s", 1.0) if best.iteration_s >= 1 else ("ms", 1e3)
    step = " -> ".join(rounded(scale * one.iteration_s, 3) for one in (answer.dense, best))
    close = ", within error" if answer.answer == "close" else ""
    said = f"{step} {unit} ({times(best.vs_dense)}{close})"
    whole = f"{words(best)}: a step {said}   {best.type}"
    if len(whole) <= WIDTH - LABEL:
        return whole
    said = said.replace(close, "")
    return f"{words(best)}: {said}  {best.type.removeprefix('ssfx.attach(...,').removesuffix(')')}"


def _now(answer: Answer) -> str:
    now, known = answer.now, answer.known
    by = "torch's sharding" if answer.sharding else f"DDP (25 MiB{', a flat ring' if answer.nodes > 1 else ''})"
    so = (
        f" ({'at best' if answer.answer == 'no' else 'with it'} {rounded(known.work, 2)})"
        if known is answer.best
        else ""
    )
    alone = f"one: {rounded(answer.alone_samples_per_s, 3)} samples/s"
    said = f": {worth(answer.devices, answer.device, now.work)}{so}; {alone}"
    return (by if len(by + said) <= WIDTH - LABEL else by.partition(" (")[0]) + said


def _free(answer: Answer) -> str:
    """Return what changes no method: another sum or bucket, and fewer exchanges."""
    found, faster = [], answer.now.iteration_s / answer.dense.iteration_s
    if faster > 1 + WORTH:
        found.append(f"{answer.dense.trial.title} {times(faster)}")
    if more := answer.fewer:
        of = worth(answer.devices, answer.device, more.work).partition(" do the ")[0]
        work = f"{rounded(more.work, 2)} of {of}' work"
        found.append(f"accumulate={more.passes}: {work} ({times(more.batch_times)} the batch)")
    said = "; ".join(found) or "nothing is left to win without another method"
    return said if len(said) <= WIDTH - LABEL else said.replace(" the batch", " batch")


def _to_win(answer: Answer) -> str:
    """Return from where on several devices are faster than one."""
    found = []
    if answer.pays_from_gbps is not None:
        found.append(f"from {rounded(answer.pays_from_gbps, 2)} Gbit/s with {words(answer.known)}")
    if more := answer.fewer:
        found.append(f"accumulate={more.passes} ({times(more.batch_times)} the batch)")
    found += [f"scheme={ROUNDS}"] if answer.rounds_may_need else []
    said = "; or ".join(found)
    return (said if len(said) <= WIDTH - LABEL else re.sub(r" \(\S+ the batch\)", "", said)) or "nothing known helps"


def _faster(answer: Answer) -> str:
    found = []
    first = 1 if answer.rounds else 2
    if named := ", ".join(map(_with_gain, answer.faster[:first])):
        more = f", {len(answer.faster) - first} more" if len(answer.faster) > first else ""
        found.append(f"{named}{more}: quality unknown or worse")
    rounds, unchecked = [], [f"{one.name} {times(one.vs_dense)}: unchecked" for one in answer.unchecked[:1]]
    if may := answer.rounds_may_need:
        rounds = [f"{ROUNDS}{'' if answer.rounds_are_sooner else f', unless over {times(may)} the steps'}"]
    found += rounds + unchecked if answer.answer == "no" else unchecked + rounds
    while len("; ".join(found)) > WIDTH - LABEL and len(found) > 1:
        found.pop()  # the first is the fastest; --all has every one
    return "; ".join(found) or "nothing, whatever its quality"


def _rounds(answer: Answer) -> Iterator[str]:
    """Yield what rounds save at most, and what is known of their quality."""
    assert answer.rounds is not None
    assert answer.rounds_may_need is not None
    one = answer.rounds.trial.plan.rounds
    assert one is not None
    groups = f" between {answer.nodes} groups of {one.ranks_per_group}" if one.ranks_per_group > 1 else ""
    short = "" if one.outer_momentum else ", outer_lr=1 outer_momentum=0 as they are few"
    by = f"over {times(answer.rounds_may_need)} the steps of {words(answer.known)}"
    sooner = "sooner by recorded quality, as none needed" if answer.rounds_are_sooner else "sooner, unless it needs"
    yield f"{ROUNDS} every {one.every}{groups}{short}: {sooner} {by}"
    quoted = [f"published: {quote}" for name, quote in answer.published if name.startswith("DiLoCo")]
    known = [*(f"recorded: {record.text}" for record in answer.rounds_recorded), *quoted]
    more = f"; {len(known) - 1} more: --quality" if len(known) > 1 else ""
    yield f"{known[0]}{more}" if known else f"no quality of them is recorded or published for {answer.nodes} replicas"


def _with_gain(one: Entry) -> str:
    return f"{one.name} {times(one.vs_dense)}" + (" (time unsure)" if one.unsure else "")


def _quality(answer: Answer) -> str:
    first, last = answer.steps_between
    if answer.best is None:
        said = "of what is faster nothing is recorded that holds here"
    elif not answer.runs or first is None or last is None:
        said = f"{words(answer.best)}: as dense, as it only rounds"
    else:
        span = " to ".join(dict.fromkeys((f"{first:+.0%}", f"{last:+.0%}")))
        said = f"{words(answer.best)}: {span} steps ({answer.runs} runs of small networks)"
    if not answer.published:
        known = f"published for task={answer.other_task}" if answer.other_task else "unpublished"
        return said + (f"; faster: {known}" if answer.faster else "")
    first_quotes = dict(reversed(answer.published))
    quoted = [f"{WORDS.get(name, name)} {quote.gap.partition(', about')[0]}" for name, quote in first_quotes.items()]
    while quoted and len(f"{said}; published: {'; '.join(quoted)}") > WIDTH - LABEL:
        quoted.pop(0)  # --quality has every one
    return f"{said}; published: {'; '.join(quoted) or '--quality'}"


def _published(answer: Answer) -> Iterator[str]:
    """Yield the first two quotes about each method, side by side, and how many more there are."""
    for name in dict.fromkeys(name for name, _ in answer.published):
        if answer.rounds and name.startswith("DiLoCo"):
            continue
        found = [str(quote) for about, quote in answer.published if about == name]
        more = [f"{len(found) - 2} more: --quality"] if len(found) > 2 else []
        yield f"{WORDS.get(name, name)}: {'; '.join([*found[:2], *more])}"
