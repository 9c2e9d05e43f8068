"""What the synchronous and the asyncio consumer share."""
