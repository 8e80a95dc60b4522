"""The papers' claims: the ledger, the values that rows give for them, and what follows."""
