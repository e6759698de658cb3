"""One file per regulariser, found by scanning this folder (``hooks.registry``); nothing else lives here."""
