"""The bundles and links by which clients install Intercom: what is in them, and the real tools that check them."""
