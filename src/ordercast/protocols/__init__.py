"""One protocol a file, its messages first. A machine knows nothing of another."""
