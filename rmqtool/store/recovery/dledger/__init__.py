"""What a start of its broker would do with a DLedger log; nothing of it is done here."""
