"""Schemas as text and as types: Avro, JSON Schema and Protobuf.

Pure: no I/O and no clock. The registry, the clients, Spark and `ottla schema check` use this code.
Every invalid text ends in one InvalidSchemaError.
"""
