"""The broker: one module for each of its jobs, put together in :mod:`rmqtool.server.broker.broker`."""
