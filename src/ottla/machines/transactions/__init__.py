"""Transactions and the producers that hold them, as kept in `__transaction_state`."""
