"""Configuration files of a broker: a model for each, and what can be saved of a damaged one."""
