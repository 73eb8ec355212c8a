"""Offline admin and inspection toolkit for Apache RocketMQ store directories."""

__version__ = "0.1.0"
