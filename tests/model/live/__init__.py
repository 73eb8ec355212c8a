"""A model of brokers that go, lie, run full and lose their store, and of the commands that copy from and to them."""
