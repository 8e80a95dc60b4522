"""Schemes: each is one pure function plan(profile, costs, options) -> Plan, registered under the names users type."""

from ssfx.schemes.base import CompressOptions, DenseOptions, Scheme, SchemeOptions, scheme, schemes

__all__ = ["CompressOptions", "DenseOptions", "Scheme", "SchemeOptions", "scheme", "schemes"]
