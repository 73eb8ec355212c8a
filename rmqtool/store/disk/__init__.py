"""The one seam to the disk: what opens, maps, locks, writes, syncs and renames the files of a store."""
