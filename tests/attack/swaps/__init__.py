"""A storm of swaps: directories and files become links, pipes and other directories while proposals are made and
applied, and nothing may be written anywhere but at the recorded path.

`python -m tests.attack.swaps --swaps 1000000` runs a long one and prints its figures.
"""
