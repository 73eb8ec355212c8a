"""Transactions: half messages, how they end, and the check that asks producers about them."""
