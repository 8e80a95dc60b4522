"""The vocabulary of plans: Plan, Profile and Costs, as frozen dataclasses. No torch."""
