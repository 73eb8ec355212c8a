"""Tables of integers that compiled and plain code read and fill alike; what each kind of them holds."""
