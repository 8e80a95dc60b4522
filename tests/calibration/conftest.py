from runtime.conftest import pool

__all__ = ["pool"]
