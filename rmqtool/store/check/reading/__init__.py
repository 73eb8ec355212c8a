"""All findings of a check read as one situation."""
