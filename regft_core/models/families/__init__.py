"""One file per encoder family, each with one constant ``FAMILY``; ``architectures.py`` finds them."""
