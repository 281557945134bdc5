"""Sites for real: asyncio, TCP, a durable history, clients."""
