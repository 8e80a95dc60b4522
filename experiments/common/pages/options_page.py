"""The page of the site with what every registered component takes: python -m experiments.common.pages.options_page."""

from experiments.common.pages.markdown import table
from ssfx.cli.listing import component_table
from ssfx.collectives import collectives
from ssfx.compressors import compressors
from ssfx.compressors.memories import memories
from ssfx.config.option_text import component_text
from ssfx.schemes import schemes

INTRODUCTION = """\
    ssfx run scheme=spardl scheme.teams=2 compressor=topk density=0.01        # options of a scheme
    ssfx run scheme=per_tensor compressor=dgc compressor.mode=faithful        # of its compressor
    ssfx run scheme=per_tensor memory=momentum memory.decay=0.9               # of the memory

In Python, options of a scheme are further arguments of `ssfx.attach`; those of a compressor or a memory stand in its
name: `ssfx.attach(model, optimizer, scheme="spardl", teams=2, compressor="topk(value_dtype=float16)")`. Collectives are
chosen by schemes, which have the options of theirs that matter. An option that would have no effect is refused."""


def options_page() -> str:
    """Return the whole page as the registries give it."""
    parts = ["# Options", INTRODUCTION, table(*component_table("schemes"))]
    for kind in (schemes, compressors, memories, collectives):
        parts += [
            f"## {kind.kind.capitalize()}",
            *(f"### {one.name}\n\n```text\n{component_text(one)}\n```" for one in kind),
        ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(options_page())
