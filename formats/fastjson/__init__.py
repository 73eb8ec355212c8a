"""JSON as RocketMQ's fastjson (1.2.69 in 4.9, 1.2.83 in 5.3) reads and writes it. No input, no output.

Brokers keep their tables in it (``config/*.json``), and clients, brokers and name servers put it into headers and
bodies. It is not quite JSON. Written are bare integer keys (``{0:12,1:5}``), in bodies also objects as keys
(``{{"topic":"T"}:12}``), and for an object that occurs twice a reference (``{"$ref":"$.topicConfigTable.Copy"}``). Read
are also names without quotes, single quotes, a comma before a closing bracket and ``\\x41``; of equal keys the last one
counts (``com.alibaba.fastjson.parser.JSONLexerBase``, ``DefaultJSONParser``, ``serializer``).

Files and bodies differ in what is accepted, so `read.loads` takes one of two sets of options, `read.FILE` or
`read.BODY`, and `declare` reads values of Java classes by the same set:

=====================  ============================================  ================================================
\\                      `FILE`                                        `BODY`
=====================  ============================================  ================================================
bytes not in UTF-8     kept as U+DC80-U+DCFF and written again       refused
comments, BOM          skipped                                       refused
``$ref``               becomes the object that it names              an object like any other
objects as keys        refused                                       `values.ObjectKey`
depth                  200 levels                                    64 levels
text for a number,     taken for one another wherever the value      only a text for an integer
1 for true, ...        stays the same
unknown members        kept, and written again                       left out
errors                 at the byte of the value, with its path       with the names of class and member
=====================  ============================================  ================================================

`write.dumps` has four forms: `write.FILE` is indented by tabs, `write.BROWSER` is the form of metrics and of values in
RocksDB, `write.BODY` that of bodies, and `write.STANDARD` that of routes for newer clients.

A Java class is declared once, as a dataclass (`declare`): names, types, defaults and first releases of its members.
Those that files and bodies share are in `formats.model`.
"""
