"""Rows, manifests and the store that keeps them."""
