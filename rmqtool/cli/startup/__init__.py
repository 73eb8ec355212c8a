"""Start-up, before a command is loaded: defaults, errors, completion, recorded help, the pager."""
