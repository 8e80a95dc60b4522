"""Measuring a machine: exchanges, compressors, and what the runtime itself costs."""
