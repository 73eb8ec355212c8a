"""JSON as read and written by RocketMQ's fastjson (1.2.69 in 4.9, 1.2.83 in 5.3). No I/O.

Brokers store their tables in it (``config/*.json``); clients, brokers and name servers use it for headers and bodies.
It is not quite JSON. Integer keys are unquoted (``{0:12,1:5}``), in bodies objects can be keys
(``{{"topic":"T"}:12}``), and in files an object that occurs twice is written once and then referenced
(``{"$ref":"$.topicConfigTable.T"}``). The other extensions that fastjson reads are supported, too: names without
quotes, single quotes, a comma before a closing bracket, raw control characters in strings, ``\\x41``, and duplicate
keys, of which the last one counts.

`read.loads` and `write.dumps` convert between text and Python values, `declare` between values and objects of Java
classes. All three take a `dialects.Dialect`, a set of options. There are two main ones, because we accept less from the
network than a broker accepts in its files:

====================================  =======================================  =================================
\\                                     `dialects.FILE`                          `dialects.BODY`
====================================  =======================================  =================================
bytes that are not UTF-8              kept, and written again                  rejected
byte-order mark, comments             skipped                                  rejected
``$ref``                              the referenced object                    an object like any other
an object as a key                    rejected                                 `values.ObjectKey`
nesting of objects and lists          200 levels                               64 levels
``"true"``, 1 for true; 7 for ``"7"``  converted                               rejected, except ``"7"`` for 7
undeclared members                    kept, and written again                  ignored
errors                                position of the value, and its path      position 0, class and member
output                                multiple lines, indented                 one line
====================================  =======================================  =================================

Two more differ only in their output: `dialects.BROWSER` is the form of metrics, of values in RocksDB and of POP
messages, `dialects.STANDARD` that of routes for newer clients. Classes used in both files and bodies are in
`formats.model`, those of files in `formats.config`, those of bodies and headers in `formats.remoting`.
"""
