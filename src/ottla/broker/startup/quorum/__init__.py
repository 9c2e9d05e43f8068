"""A node in a quorum of controllers: its replica, its listener for controllers, its broker."""
