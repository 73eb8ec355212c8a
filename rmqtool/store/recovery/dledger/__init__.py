"""Predict what a start of its broker would do with a DLedger log; nothing of it is carried out."""
