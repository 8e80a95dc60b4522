"""Where a number comes from: the label that every row, profile and cost table carries."""

from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["measured", "emulated", "simulated", "published", "fitted", "nominal"]
BEWARE = "beware: "
"""What stands in a note before that which must be said with every answer."""
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Origin:
    """How a number was obtained, on what, when and with which versions.

    measured: real processes, real network. emulated: real processes, shaped links. simulated: virtual time.
    published: quoted from a paper. fitted: made to fit some numbers of a paper, which are then not
    compared. nominal: line rate or data sheet times a stated efficiency.
    """

    kind: Kind
    hardware: str = ""
    date: str = ""
    note: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """The note without what must be said with every answer (`cautions` has that)."""
        return self.note.partition(f"; {BEWARE}")[0]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"origin must be one of {', '.join(KINDS)}, got {self.kind!r}")
