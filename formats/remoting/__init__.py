"""The remoting protocol of clients, brokers and name servers: frames, headers and bodies. No input, no output.

`frame` reads and builds frames, `fields` maps headers to declared dataclasses and `formats.fastjson.declare` bodies.
Which of them belong to a request code stands at its handler in ``rmqtool.server``. Paths of RocketMQ's classes are
below ``org.apache.rocketmq.remoting`` (5.x).
"""
