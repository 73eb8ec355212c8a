"""Consumers: pull, lite pull, push and POP."""
