"""What commands are made of: the application, their options, opening a store, signals, usage errors."""
