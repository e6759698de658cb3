"""Tables of papers with ours in their cells, and what this run says of the papers' claims."""
