"""Where the files of a store lie, and what its broker and release say of them."""
