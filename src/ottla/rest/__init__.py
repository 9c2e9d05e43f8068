"""The REST proxy: topics, records and groups of the cluster over HTTP, in Confluent's forms."""
