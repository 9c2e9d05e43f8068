"""Values of Avro, JSON Schema and Protobuf as columns of Arrow, and back."""
