"""The language of SQL92 subscriptions."""
