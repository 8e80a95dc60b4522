from runtime.conftest import pool, pytest_collection_modifyitems, ranks

__all__ = ["pool", "pytest_collection_modifyitems", "ranks"]
