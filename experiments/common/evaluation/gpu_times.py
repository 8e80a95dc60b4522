"""Times of compressors on the GPU that was timed: an H200, no paper's card. A record of the package, no rows."""

from ssfx.perf_model.measured_gpus import measured_gpu

NAME = "H200"
OTHER_CARD = f"an {NAME} was timed, not the paper's card"
COMMAND, COST = "ssfx validate gpu", f"one {NAME}, recorded"


def times_ms(compressor: str) -> dict[int, tuple[float, float]]:
    """Return milliseconds to encode and to decode one tensor at density 0.01, by its elements."""
    gpu = measured_gpu(NAME.lower())
    times = gpu.codecs[compressor]
    return {
        numel: (1e3 * encode_s, 1e3 * decode_s)
        for numel, (_, encode_s), (_, decode_s) in zip(gpu.numel, times.encode, times.decode, strict=True)
    }
