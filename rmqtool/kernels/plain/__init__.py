"""The entry points of the kernels in plain Python: the rules as the codecs say them, and the way without a library."""
