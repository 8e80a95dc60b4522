"""Schemes: each is one pure function plan(profile, costs, options) -> Plan, registered under the names users type."""

from ssfx.schemes.base import DenseOptions, Scheme, SchemeOptions, SparseOptions, scheme, schemes

__all__ = ["DenseOptions", "Scheme", "SchemeOptions", "SparseOptions", "scheme", "schemes"]
