"""POP: messages that are handed out for a time, acked, and revived where they are not; rules and state, no network."""
