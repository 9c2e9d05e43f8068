"""Sessions with a real ZooKeeper. The contract is `ottla.environment.zookeeper`."""
