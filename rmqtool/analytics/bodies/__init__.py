"""Columns for what bodies hold: JSON, Avro and Protobuf by a schema."""
