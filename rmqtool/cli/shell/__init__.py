"""What all commands share: the application, options, output, signals."""
