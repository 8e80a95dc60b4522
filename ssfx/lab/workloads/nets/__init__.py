"""Network definitions, imported by the builders of the catalog when a model is built."""
