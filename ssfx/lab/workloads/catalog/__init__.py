"""Declarations of models and data sets, read by the registries; nothing here imports torch before it is used."""
