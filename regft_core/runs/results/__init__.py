"""What the stages leave in ``work/``: its layout, its records, and the one way of reading and writing them."""
