"""Sizes of networks that are known by formula alone: GNMT with its embedding tables."""

VOCABULARY = 32_317
"""Of the public GNMT code for WMT-16 English to German, which the paper does not name."""


def lstm(inputs: int, units: int) -> int:
    """Return the parameters of one LSTM layer with both of PyTorch's bias vectors."""
    return 4 * units * (inputs + units) + 8 * units


def gnmt(units: int, layers: int) -> tuple[int, int]:
    """Return the parameters of GNMT's two embedding tables and of all the rest.

    `layers` encoders, the first of them bidirectional, and as many decoders that read an attention context; normalised
    attention, and a classifier of its own.
    """
    embeddings = 2 * VOCABULARY * units
    encoder = 2 * lstm(units, units) + lstm(2 * units, units) + (layers - 2) * lstm(units, units)
    decoder = lstm(units, units) + (layers - 1) * lstm(2 * units, units)
    attention = 2 * units * units + 2 * units + 1
    classifier = units * VOCABULARY + VOCABULARY
    return embeddings, encoder + decoder + attention + classifier
