"""Times of clusters and models that are not here: devices, links, operator counts, timing models. No torch."""
