"""The remoting protocol of clients, brokers and name servers: frames, headers and bodies. Does no I/O.

`frame` reads and builds frames, `fields` maps headers to dataclasses, and `formats.fastjson.declare` does so for
bodies. The handlers in ``rmqtool.server`` show which of them belong to a request code. RocketMQ class names are
relative to ``org.apache.rocketmq.remoting`` (5.x).
"""
