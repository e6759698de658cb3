"""What papers print, and what public sets are known to be."""
