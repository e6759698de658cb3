"""Ways to one vector of a text's tokens, one file each; ``model.pooling`` names the file (``catalogue.py`` finds it).

A file defines ``pool(hidden, mask, summary)``: vectors [rows, H] of token vectors [rows, n, H]. ``mask`` [rows, n] is 1
on real tokens; every row has at least one, and padding may be on either side. ``summary`` is the real token that stands
for a text in the family, ``first`` or ``last``. ``finish(vectors)``, if there is one, acts once the windows of a text
are averaged. There are no parameters. An export knows the shipped ones only.
"""
