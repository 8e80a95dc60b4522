"""What data sets in files have in common: which files, where, and what is said when one is not there.

Nothing is downloaded but for data.download=true.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ssfx.core.errors import RunError
from ssfx.core.paths import DATA_VARIABLE, data_root
from ssfx.lab.workloads.declarations import Dataset
from ssfx.lab.workloads.on_disk.tokens import TRAINED

if TYPE_CHECKING:
    from ssfx.lab.workloads.on_disk.loader import MapStream, Samples
    from ssfx.lab.workloads.stream import Batch


class SampledDataset(Dataset):
    """A data set outside of ssfx whose samples can be asked for by number."""

    here = False
    prepares = True

    @abstractmethod
    def samples(self, train: bool) -> Samples:
        """Return the samples of the training or of the held-out part."""

    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> MapStream:
        """Return this rank's batches; torch's generator is seeded for each sample, so that it may be augmented."""
        from ssfx.lab.workloads.on_disk.loader import MapStream

        return MapStream(
            self.samples(train=True),
            rank=rank,
            world_size=world_size,
            batch_size=batch_size,
            seed=seed,
            workers=workers,
        )

    def held_out_batches(self, rank: int, world_size: int) -> Iterator[Batch]:
        """Yield the rank's share of the held-out samples."""
        from torch.utils.data import default_collate

        samples = self.samples(train=False)
        share = range(rank, len(samples), world_size)
        for start in range(0, len(share), self.evaluation_batch):
            inputs, targets = default_collate(
                [samples[number] for number in share[start : start + self.evaluation_batch]]
            )
            yield inputs, targets


class FileDataset(SampledDataset):
    """A data set that is read from `folder` below the user's data root.

    `files`: for each file that is needed, the names that it may have, as glob patterns relative to the folder; the
    first that fits is taken, and where several files fit it, all of them in the order of their names.
    """

    folder: ClassVar[str]
    files: ClassVar[tuple[tuple[str, ...], ...]]
    hint: ClassVar[str] = ""
    """What else helps someone who has not got the files."""
    published: ClassVar[int] = 0
    """Training samples, or words of text, of the data set as it was published; 0: unknown."""

    @property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The files that are needed with these options."""
        return self.files

    def missing(self) -> str:
        """Return which files are not there and where to put them."""
        root = data_root()
        place = root or Path("DIR")
        absent = [names for names in self.wanted if root is None or not _found(root / self.folder, names)]
        if not absent:
            return ""
        needs = ", ".join(" or ".join(names) for names in absent)
        where = "" if root else f", with data.root=DIR or {DATA_VARIABLE}=DIR"
        return f"dataset={self.name} needs {needs} in {place / self.folder}{where}{self.hint}"

    def training_size(self) -> int:
        """Return the samples, or words of text, that the training part has here."""
        return len(self.samples(train=True))

    def part(self) -> str:
        """Return which part of the published training data this is, by count; "" for all of it, or if unknown."""
        size = self.training_size() if self.published else 0
        if size == self.published:
            return ""
        return f"trained on {size:,} of the {self.published:,} published training samples or words of {self.name}"

    def paths(self, number: int) -> list[Path]:
        """Return the files that stand for `wanted[number]`; RunError when there are none."""
        root = data_root()
        found = _found(root / self.folder, self.wanted[number]) if root else []
        if not found:
            raise RunError(self.missing())
        return found

    def fingerprint(self) -> str:
        """Return the hash of the content of all files and of the options."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        every = [path for number in range(len(self.wanted)) for path in self.paths(number)]
        return digest_of(every, self.name, self.options)

    def download(self) -> None:
        """Fetch the files; RunError for data that may not be fetched without an account."""
        raise RunError(f"dataset={self.name} cannot be downloaded by ssfx; {self.missing()}")


def _found(folder: Path, names: tuple[str, ...]) -> list[Path]:
    for name in names:
        if Path(name).is_absolute():
            if Path(name).exists():
                return [Path(name)]
        elif found := sorted(folder.glob(name)):
            return found
    return []


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


def fetch_tables(name: str, config: str | None, folder: str) -> None:
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


def digest_of(paths: Iterable[Path], *more: object) -> str:
    """Return 16 hex digits of the content of files and of `more`; RunError for one that cannot be read."""
    found = hashlib.sha256(repr(more).encode())
    for path in paths:
        try:
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from None
    return found.hexdigest()[:16]
