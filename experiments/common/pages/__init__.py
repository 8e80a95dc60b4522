"""The pages that `make docs` writes from reference rows and registries: blocks of README and docs, and whole pages."""
