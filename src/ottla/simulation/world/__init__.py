"""The simulated outside world: time, disks, network, ZooKeeper, processes."""
