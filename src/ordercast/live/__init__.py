"""Sites on asyncio and TCP."""
