from collections.abc import Iterator

import pytest
import torch
from runtime.pool import Pool


@pytest.fixture(scope="session")
def pair() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
