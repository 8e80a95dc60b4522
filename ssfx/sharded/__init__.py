"""Exchanges of models that torch's `fully_shard` has wrapped: gradients of shards, between replicas of each shard."""
