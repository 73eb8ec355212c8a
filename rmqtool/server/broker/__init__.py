"""The broker: one module per job, assembled in :mod:`rmqtool.server.broker.broker`."""
