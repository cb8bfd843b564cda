"""The page in the browser: what waits for people, and its API."""
