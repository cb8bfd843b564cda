"""The local machine: file locations, locks, sockets and processes."""
