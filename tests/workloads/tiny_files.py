"""Data sets of a few samples, written in the formats in which the real ones are published."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np

WORDS = ("the", "a", "red", "blue", "old", "house", "river", "town", "stands", "near", "by", "lies", "in", "of")


def sentence(number: int, length: int = 12) -> str:
    rng = np.random.default_rng(number)
    return " ".join(str(word) for word in rng.choice(WORDS, length))


def cifar(root: Path, kind: str = "cifar100", per_file: int = 12) -> None:
    """Write the pickles of the Python archive: rows of 3072 bytes, red before green before blue."""
    rng = np.random.default_rng(0)
    hundred = kind == "cifar100"
    folder = root / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    folder.mkdir(parents=True)
    names = ["train", "test"] if hundred else [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    for name in names:
        labels = rng.integers(100 if hundred else 10, size=per_file).tolist()
        batch = {"data": rng.integers(256, size=(per_file, 3072), dtype=np.uint8), "filenames": ["x.png"] * per_file}
        batch |= {"fine_labels": labels, "coarse_labels": [0] * per_file} if hundred else {"labels": labels}
        (folder / name).write_bytes(pickle.dumps(batch))
    meta = {"fine_label_names" if hundred else "label_names": [f"class{n}" for n in range(100 if hundred else 10)]}
    (folder / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps(meta))


def image_folder(root: Path, images: int = 3) -> None:
    """Write a tree of JPEG files, one folder a class, of sizes that differ."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in ("n01440764", "n01443537"):
            folder = root / "imagenet" / part / label
            folder.mkdir(parents=True)
            for number in range(images):
                pixels = rng.integers(256, size=(240 + 20 * number, 300, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{label}_{number}.JPEG", quality=60)


def _table(path: Path, rows: list[dict]) -> None:
    """Write a table of the hub."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def squad(root: Path, questions: int = 10) -> None:
    """Write the tables of SQuAD v1.1; every answer is a word of its paragraph."""
    folder = root / "squad"
    folder.mkdir(parents=True)
    for part, name in enumerate(("train", "validation")):
        rows = []
        for number in range(questions // 2):
            context = f"{sentence(100 * part + number, 20)}. The Keeper of {number} is Anna{number} Berg."
            answers = {"text": [f"Anna{number} Berg"], "answer_start": [context.index("Anna")]}
            rows += 2 * [{"question": f"Who is the keeper of {number}?", "context": context, "answers": answers}]
        _table(folder / f"{name}-00000-of-00001.parquet", rows)


def wikitext(root: Path, folder: str, parquet: bool = False, lines: int = 60) -> None:
    """Write the .tokens files of the archive, or the tables of the hub, with headings and blank lines as there."""
    place = root / folder
    place.mkdir(parents=True)
    for part, table in (("train", "train-00000-of-00001"), ("valid", "validation-00000-of-00001")):
        texts = [" = Heading = \n", " \n", *(f" {sentence(n)} <unk> . \n" for n in range(lines))]
        if parquet:
            _table(place / f"{table}.parquet", [{"text": text} for text in texts])
        else:
            (place / f"wiki.{part}.tokens").write_text("".join(texts))


def wmt16(root: Path, pairs: int = 40) -> None:
    """Write tables of {"de", "en"} as on the hub."""
    place = root / "wmt16"
    place.mkdir(parents=True)
    for part in ("train", "validation"):
        both = [{"de": f'"{sentence(n, 5)}, sagt er', "en": sentence(n + 1, 5)} for n in range(pairs)]
        _table(place / f"{part}-00000-of-00001.parquet", [{"translation": one} for one in both])


def word_piece(folder: Path, pieces: Sequence[str] = ()) -> None:
    """Write BERT's tokenizer.json of these words, letter by letter where a word is not among them; or of `pieces`."""
    from tokenizers import BertWordPieceTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789?.,"
    usual = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *WORDS[2:]]
    folder.mkdir(parents=True, exist_ok=True)
    made = BertWordPieceTokenizer({piece: n for n, piece in enumerate(pieces or usual)})
    made.save(str(folder / "tokenizer.json"))
