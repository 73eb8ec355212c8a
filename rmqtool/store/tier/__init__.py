"""The tier of a 5.x store beside the local files: what it has of each queue, and what a broker does about it."""
