"""The tier of a 5.x store next to the local files: its contents per queue, and what a broker does about it."""
