"""What a finding may be called, what it means and what to do about it."""
