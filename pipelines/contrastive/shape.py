"""What the towers and the rows of a study must agree on."""

PATCH = 8  # pixels of a side of a patch
HEADS = 4  # of attention, in both towers
CONTEXT = 16  # tokens of a caption; longer captions are cut, and counted
