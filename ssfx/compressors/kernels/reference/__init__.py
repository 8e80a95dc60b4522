"""The plain-torch kernels: slow, obvious, and the oracle for the compiled ones."""
