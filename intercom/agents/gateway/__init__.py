"""The gateway towards agents: the tools of downstreams among our own, over any transport."""
