"""Stores and outputs identified by URIs."""
