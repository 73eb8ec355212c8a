"""Configuration files of a broker: a model for each, and salvage of damaged ones."""
