"""Error-feedback memories: what a rank keeps of what it did not send."""

from ssfx.compressors.memories.base import Memory, check_pair, memories

__all__ = ["Memory", "check_pair", "memories"]
