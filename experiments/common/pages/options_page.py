"""The page docs/options.md: every registered component with its source, its options, their defaults and meaning."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from experiments.common.pages.markdown import NOTE, anchor, code, table
from ssfx.collectives import collectives
from ssfx.compressors import compressors
from ssfx.compressors.memories import memories
from ssfx.config.option_text import added, described, layers, types, value
from ssfx.schemes import schemes
from ssfx.schemes.capabilities import HEADER, capabilities

INTRODUCTION = """\
Schemes, compressors, memories and collectives, from their registries: what `ssfx list` shows, and the options.

    ssfx run scheme=spardl scheme.teams=2 compressor=topk density=0.01        # options of a scheme
    ssfx run scheme=per_tensor compressor=dgc compressor.mode=faithful        # of its compressor
    ssfx run scheme=per_tensor memory=momentum memory.decay=0.9               # of the memory

In Python, options of a scheme are further arguments of `ssfx.attach`; those of a compressor or a memory stand in its
name: `ssfx.attach(model, optimizer, scheme="spardl", teams=2, compressor="topk(value_dtype=float16)")`. Collectives are
chosen by schemes, which have the options of theirs that matter. An option that would have no effect is refused.
`density` is the fraction of gradient elements that is sent, in (0, 1]."""


GLANCE = """\
What one compressor call of a scheme handles, which compressors it takes (its default in brackets), how messages become
one sum, and what is kept between steps:"""


@dataclass(frozen=True)
class Component:
    """What the page needs to know of a registered component; `options` is the dataclass that holds its defaults.

    `collectives` are those that a scheme may use: it passes options of the same name on.
    """

    name: str
    summary: str
    source: str
    options: Any
    collectives: tuple[str, ...] = ()


def options_page() -> str:
    """Return the whole page as the registries give it."""
    kinds = {
        "Schemes": [Component(one.name, one.summary, one.source, one.defaults, one.collectives) for one in schemes],
        "Compressors": [Component(one.name, one.summary, one.cls.source, one.options) for one in compressors],
        "Memories": [Component(one.name, one.summary, one.cls.source, one.options) for one in memories],
        "Collectives": [Component(one.name, one.summary, one.cls.source, one.options) for one in collectives],
    }
    sections = [_section(kind, found) for kind, found in kinds.items()]
    # What every scheme can do, without what only a listing has room for.
    glance = table(HEADER[:-1], [astuple(line)[:-1] for line in capabilities()])
    return "\n\n".join([f"# Options\n\n<!-- {NOTE} -->\n\n{INTRODUCTION}", GLANCE, glance, *sections]) + "\n"


def _section(kind: str, found: Sequence[Component]) -> str:
    """Return the components of a kind; what introduces options that several of them have comes once, at the end."""
    users = Counter(layer for one in found for layer in layers(type(one.options)) if fields(layer))
    shared = [layer for layer, count in users.items() if count > 1 and described(layer).prose]
    heading = f"Options that several {kind.lower()} share"
    parts = [f"## {kind}", *(_component(one, shared, heading) for one in found)]
    if shared:
        lines = [f"- {', '.join(map(code, added(layer)))}: {described(layer).prose}" for layer in shared]
        parts += [f"### {heading}", "\n".join(lines)]
    return "\n\n".join(parts)


def _component(one: Component, shared: Collection[type], heading: str) -> str:
    cls = type(one.options)
    parts = [f"### {one.name}", f"{one.summary[0].upper()}{one.summary[1:]}. Source: {one.source}."]
    if not fields(cls):
        return "\n\n".join([*parts, "No options."])
    may_be, defaults = types(cls), asdict(one.options)
    prose = " ".join(filter(None, (described(layer).prose for layer in layers(cls) if layer not in shared)))
    lines = []
    for name in (field.name for field in fields(cls)):
        said = _meaning(one, name, prose)
        if not said and any(name in added(layer) for layer in layers(cls) if layer in shared):
            said = f"[shared](#{anchor(heading)})"
        lines.append((code(name), code(value(defaults[name])), may_be[name], said or "-"))
    return "\n\n".join([*parts, table(("option", "default", "type", "meaning"), lines), *([prose] if prose else [])])


def _meaning(one: Component, name: str, prose: str) -> str:
    """Return what docstrings say about one option, or where they do; "" if nowhere."""
    # The class itself first: it may say more than the one that it has the option from.
    if said := next((text for layer in layers(type(one.options)) if (text := described(layer).each.get(name))), ""):
        return said
    if code(name) in prose:
        return "see below"
    owner = next((other for other in one.collectives if name in types(type(collectives[other].options))), "")
    return f"that of the collective {code(owner)}" if owner else ""
