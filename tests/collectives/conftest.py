from runtime.conftest import pool, ranks

__all__ = ["pool", "ranks"]
