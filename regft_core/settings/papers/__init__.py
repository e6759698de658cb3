"""Facts that papers print, and facts of public sets and encoders."""
