"""The common core of the synchronous and the asyncio consumer."""
