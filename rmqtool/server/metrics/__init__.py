"""What a served store tells of itself in figures: to Prometheus, and on a terminal."""
