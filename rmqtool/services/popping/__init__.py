"""POP: messages handed out for a limited time, acks, and revival of unacked messages; rules and state, no network."""
