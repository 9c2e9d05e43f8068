"""The metadata store of a node in a quorum of controllers."""
