"""The remoting protocol of clients, brokers and name servers: frames, headers and bodies. No input, no output.

`frame` reads and builds frames, `typed` maps headers and bodies to declared dataclasses. Which of them belong to a
request code stands at its handler in ``rmqtool.server``. Paths of RocketMQ's classes are below
``org.apache.rocketmq.remoting`` (5.x).
"""
