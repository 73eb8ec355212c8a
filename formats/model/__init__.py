"""Java classes that occur both in files and in message bodies."""
