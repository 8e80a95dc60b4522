"""Tokenizers from the user's files, or trained on the user's text; the `tokenizers` library does the work."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError

TRAINED = "bpe"
"""What the option `tokenizer` says instead of a folder, to have one trained on the training part."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Tokens of BERT, which a tokenizer that is trained here has, too; [PAD] is number 0."""


def wanted(tokenizer: str) -> tuple[tuple[str, ...], ...]:
    """Return the file that is needed for the option `tokenizer`; see FileDataset."""
    return () if tokenizer == TRAINED else ((f"{tokenizer}/tokenizer.json",),)


def load_tokenizer(path: Path, limit: int) -> Any:
    """Return the tokenizer of a file that `wanted` names; ConfigError if it has more tokens than `limit`."""
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise ConfigError(f"{path} is no tokenizer that can be read: {error}") from None
    found.no_truncation()
    found.no_padding()
    size = found.get_vocab_size(with_added_tokens=True)
    if size > limit:
        raise ConfigError(f"{path} has {size} tokens, and the model knows {limit}; use the model's own tokenizer")
    return found


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """Return a byte-pair tokenizer (Sennrich et al. 2016) over bytes, trained on `texts`, of at most so many tokens."""
    from tokenizers import ByteLevelBPETokenizer

    found = ByteLevelBPETokenizer()
    found.train_from_iterator(texts, vocabulary, min_frequency=0, show_progress=False, special_tokens=list(SPECIAL))
    return found._tokenizer


def special(tokenizer: Any, token: str, where: str) -> int:
    """Return the number of a special token; ConfigError when the tokenizer has none."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ConfigError(f"the tokenizer of {where} has no {token}, so it is not BERT's; name another folder")
    return int(number)


def encoded(tokenizer: Any, texts: Iterable[str], at_once: int = 1024) -> Iterator[Any]:
    """Yield the encoding of each text, without special tokens; `at_once` are done by several threads."""
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == at_once:
            yield from tokenizer.encode_batch(block, add_special_tokens=False)
            block = []
    if block:
        yield from tokenizer.encode_batch(block, add_special_tokens=False)
