"""The schema registry: state replayed from `_schemas`, rules, and Confluent's REST interface."""
