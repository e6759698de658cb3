"""Orders of the training rows, one file each; ``training.sampler`` names the file (``catalogue.py`` finds it).

A file defines ``batches(lengths, labels, *, seed, epoch, batch_size, bucket_batches)``: the batches of an epoch, each a
list of positions in ``lengths`` (tokens) and ``labels`` (of the training rows; a row may occur several times or not at
all). It is a pure function of its arguments, and an epoch has as many batches as all rows fill, each of 1 to
``batch_size`` rows.
"""
