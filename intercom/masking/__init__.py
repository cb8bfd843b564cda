"""Masking of secrets in everything that leaves the machine."""

from intercom.masking.masker import KNOWN, KnownSecrets, Masked, Masker, masked_lines

__all__ = ["KNOWN", "KnownSecrets", "Masked", "Masker", "masked_lines"]
