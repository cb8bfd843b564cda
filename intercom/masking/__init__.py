"""Masking of secrets in everything that leaves the machine."""

from intercom.masking.known import KNOWN, KnownSecrets
from intercom.masking.masker import Masked, Masker
from intercom.masking.parts import masked_lines

__all__ = ["KNOWN", "KnownSecrets", "Masked", "Masker", "masked_lines"]
