"""The commit log: read record by record, scanned in bulk, written."""
