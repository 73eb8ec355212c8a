"""Stores and outputs behind URIs."""
