"""What a start needs before it is known which command runs, and when none can: defaults, errors, completion."""
