"""Supervised actors: OTP supervision for Pykka, on Trio."""
