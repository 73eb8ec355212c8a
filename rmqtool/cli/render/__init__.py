"""What is shown, in every form: text, tables, JSON, CSV, times, progress."""
