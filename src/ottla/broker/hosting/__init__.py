"""The partitions that this broker hosts: logs, roles, flushes and high watermarks."""
