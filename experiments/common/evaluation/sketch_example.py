"""The count sketch of S2 Reducer on small made-up vectors: what adds up, what is biased, how noisy it is.

Hash functions are those of collective s2_sketch, evaluated on arrays without torch.
"""

import numpy as np
from numpy.typing import NDArray

from ssfx.collectives.s2_sketch import PRIME, Hashes, draw

Array = NDArray[np.float64]

ELEMENTS, BLOCK, KEPT = 4_096, 64, 4
WORKERS = 4
BUCKETS = 256
DRAWS = 400
"""Hash functions over which means are taken."""


def buckets(hashes: Hashes, at: NDArray[np.int64], cols: int) -> NDArray[np.int64]:
    """Return the bucket of every element number."""
    return (at * hashes.a + hashes.b) % PRIME % cols


def signs(hashes: Hashes, at: NDArray[np.int64]) -> Array:
    """Return the sign of every element number, by the cubic polynomial."""
    value = np.full_like(at, hashes.q[0])
    for coefficient in hashes.q[1:]:
        value = (value * at + coefficient) % PRIME
    found: Array = (1 - 2 * (value % 2)).astype(np.float64)
    return found


def sketch(hashes: Hashes, vector: Array, at: NDArray[np.int64], cols: int = BUCKETS) -> Array:
    """Return the sketch of the elements `at` of a vector."""
    filled = np.bincount(buckets(hashes, at, cols), signs(hashes, at) * vector[at], cols)
    return filled.astype(np.float64)


def queried(hashes: Hashes, filled: Array, at: NDArray[np.int64]) -> Array:
    """Return what the sketch says about the elements `at`."""
    found: Array = signs(hashes, at) * filled[buckets(hashes, at, len(filled))]
    return found


def hashes(number: int) -> Hashes:
    """Return the hash functions of draw `number`."""
    return draw(7, ELEMENTS, number)


def block_sparse(seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return a vector of which KEPT blocks are not zero, and the numbers of those blocks."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(ELEMENTS // BLOCK, KEPT, replace=False))
    vector = np.zeros(ELEMENTS)
    for block in chosen:
        vector[block * BLOCK : (block + 1) * BLOCK] = rng.standard_normal(BLOCK)
    return vector, chosen


def linearity() -> float:
    """Return the largest difference between the sum of the workers' sketches and the sketch of their sum."""
    hashed, every = hashes(0), np.arange(ELEMENTS)
    vectors = [block_sparse(seed)[0] for seed in range(WORKERS)]
    together = sum(sketch(hashed, vector, every) for vector in vectors)
    return float(np.abs(together - sketch(hashed, np.sum(vectors, axis=0), every)).max())


def zeros_skipped() -> float:
    """Return the largest difference between the sketch of all elements and of those that are not zero."""
    hashed, (vector, _) = hashes(0), block_sparse(0)
    dense, sparse = sketch(hashed, vector, np.arange(ELEMENTS)), sketch(hashed, vector, np.flatnonzero(vector))
    return float(np.abs(dense - sparse).max())


def wrong_blocks() -> int:
    """Return how many blocks the summed bitmap misses or adds."""
    chosen = [block_sparse(seed)[1] for seed in range(WORKERS)]
    bitmap = np.zeros(ELEMENTS // BLOCK, dtype=np.uint8)
    for blocks in chosen:
        bitmap[blocks] += 1
    return len(set(np.flatnonzero(bitmap)) ^ set(np.concatenate(chosen).tolist()))


def bias() -> tuple[float, float]:
    """Return the slope of the mean of many queries over the vector, less 1, and its standard error."""
    vector, _ = block_sparse(0)
    at = np.flatnonzero(vector)
    slopes = [
        float(queried(hashed, sketch(hashed, vector, at), at) @ vector[at] / (vector[at] @ vector[at]))
        for hashed in map(hashes, range(DRAWS))
    ]
    return float(np.mean(slopes) - 1), float(np.std(slopes) / DRAWS**0.5)


def relative_noise(ratio: float) -> float:
    """Return the mean squared error of a query over the vector's energy, with `ratio` buckets an element."""
    vector, _ = block_sparse(0)
    at = np.flatnonzero(vector)
    cols = int(ratio * len(at))
    energy = float(vector @ vector)
    noise = [
        float(((queried(hashed, sketch(hashed, vector, at, cols), at) - vector[at]) ** 2).sum()) / energy
        for hashed in map(hashes, range(DRAWS // 4))
    ]
    return float(np.mean(noise))


def collisions(cols: int = 32) -> tuple[float, float]:
    """Return how often two elements share a bucket with equal and with opposite signs."""
    first, second = np.array([5]), np.array([3001])
    equal = opposite = 0
    number = 40 * DRAWS
    for hashed in map(hashes, range(number)):
        if buckets(hashed, first, cols)[0] == buckets(hashed, second, cols)[0]:
            same = signs(hashed, first)[0] == signs(hashed, second)[0]
            equal, opposite = equal + bool(same), opposite + (not same)
    return equal / number, opposite / number
