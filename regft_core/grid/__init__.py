"""Jobs to processes, devices and other hosts."""
