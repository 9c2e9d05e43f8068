"""The controller's decisions about topics, settings, brokers and producer ids."""
