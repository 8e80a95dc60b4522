"""Error-feedback memories: what a rank keeps of what it did not send."""

from ssfx.memories.base import Memory, memories

__all__ = ["Memory", "memories"]
