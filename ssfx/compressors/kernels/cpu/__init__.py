"""Kernels compiled for the CPU by numba."""
