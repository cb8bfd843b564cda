"""Rooms: sessions that teams of agents join, with a feed, a roster and one shared document."""
