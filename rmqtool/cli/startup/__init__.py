"""What runs before a command is known, and when none can run: defaults, errors, completion, the pager."""
