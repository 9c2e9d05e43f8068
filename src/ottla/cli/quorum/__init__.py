"""Commands for nodes with a quorum of controllers: `ottla storage` and `ottla quorum`."""
