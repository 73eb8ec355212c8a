"""The man page, made from the commands themselves."""
