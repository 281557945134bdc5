"""A site without I/O: what comes in is fed to it, what is to be done comes out."""
