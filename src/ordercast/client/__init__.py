"""What applications import; nothing of a server."""
