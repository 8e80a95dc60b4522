"""Text and tables in files, read by Hugging Face's `datasets`, which never asks the network here."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ssfx.core.errors import RunError

_KINDS = {".parquet": "parquet", ".json": "json", ".csv": "csv", ".tsv": "csv"}


def rows(paths: Sequence[Path], **options: Any) -> Iterator[dict[str, Any]]:
    """Yield every row of files of one kind, by their ending; a line of any other file is a row {"text": line}.

    RunError for what cannot be read.
    """
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(name, "1")
    import datasets

    datasets.disable_progress_bars()
    kind = _KINDS.get(paths[0].suffix, "text")
    try:
        yield from datasets.load_dataset(
            kind, data_files=[str(path) for path in paths], split="train", streaming=True, **options
        )
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        raise RunError(f"{paths[0]} cannot be read as {kind}: {error}") from None


def lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the column "text" of tables, or the lines of texts, without the line break at their end."""
    for row in rows(paths):
        if "text" not in row:
            raise RunError(f"{paths[0]} has no column text; it has {', '.join(row)}")
        yield row["text"].removesuffix("\n")
