"""The reverse proxies of docs/how-to/reverse-proxy.md, run for real: `python -m tests.proxy` (tox -e proxy).

Not part of the default run: it needs nginx and Caddy on the PATH.
"""
