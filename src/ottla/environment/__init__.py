"""The outside world as interfaces: clock, disk, network, randomness, ZooKeeper."""
