"""Searches and grouping rules that several schemes share."""
