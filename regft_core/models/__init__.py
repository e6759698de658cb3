"""Pretrained encoders: where they come from, how they are loaded, where methods act on them, how they are exported."""
