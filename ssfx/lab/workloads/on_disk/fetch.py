"""Downloads, only ever called for data.download=true."""

from pathlib import Path

from ssfx.core.errors import RunError
from ssfx.core.paths import DATA_VARIABLE, data_root
from ssfx.lab.workloads.on_disk.tokens import TRAINED


def fetch_file(url: str, folder: str, name: str) -> None:
    """Fetch one file, unless it is there."""
    path = _place(folder) / name
    if path.exists():
        return
    import urllib.request  # late: every command that names a model imports this module, and few download

    partial = path.with_name(f"{name}.partial")
    try:
        urllib.request.urlretrieve(url, partial)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(f"{url} cannot be downloaded: {error}") from None
    partial.rename(path)


def fetch_tokenizer(name: str, folder: str, tokenizer: str) -> None:
    """Fetch the tokenizer of a model on the Hugging Face hub, unless it is there or one is trained."""
    path = _place(folder) / tokenizer / "tokenizer.json"
    if tokenizer == TRAINED or path.exists():
        return
    from tokenizers import Tokenizer

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        Tokenizer.from_pretrained(name).save(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise RunError(f"the tokenizer {name} cannot be downloaded: {error}") from None


def fetch_tables(name: str, config: str, folder: str) -> None:
    """Fetch a data set of the Hugging Face hub, or take it from the cache of `datasets`, as one parquet file a part."""
    import datasets

    place = _place(folder)
    try:
        for part, table in datasets.load_dataset(name, config).items():
            table.to_parquet(str(place / f"{part}.parquet"))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise RunError(f"{name} cannot be downloaded: {error}") from None


def download_root() -> Path:
    """Return the folder of the user's data sets; RunError when none is set."""
    root = data_root()
    if root is None:
        raise RunError(f"data.download=true needs a place to put files; name it with data.root=DIR or {DATA_VARIABLE}")
    return root


def _place(folder: str) -> Path:
    place = download_root() / folder
    place.mkdir(parents=True, exist_ok=True)
    return place
