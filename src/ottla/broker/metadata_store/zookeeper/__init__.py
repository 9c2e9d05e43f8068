"""The metadata store of a cluster on ZooKeeper, in Kafka's znodes."""
