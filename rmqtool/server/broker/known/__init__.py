"""What a broker knows while it runs: who it is, who is connected, what was counted."""
