"""Commands that mend a store, or begin one."""
