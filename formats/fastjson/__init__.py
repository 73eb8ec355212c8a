"""JSON as RocketMQ's fastjson reads and writes it (1.2.69 in 4.9, 1.2.83 in 5.3). No input, no output.

Brokers keep their tables in it (``config/*.json``); clients, brokers and name servers put it into headers and bodies.
It is not quite JSON. Integer keys stand bare (``{0:12,1:5}``), in bodies objects are keys too
(``{{"topic":"T"}:12}``), and in files an object that occurs twice is written once and then referred to
(``{"$ref":"$.topicConfigTable.T"}``). What fastjson reads beyond that is read here as well: names without quotes,
single quotes, a comma before a closing bracket, raw control characters within strings, ``\\x41``, and equal keys, of
which the last one counts.

`read.loads` and `write.dumps` turn text into Python's values and back, `declare` turns values into objects of Java's
classes. All three take a `dialects.Dialect`, a set of options. There are two, for what a broker lets into its files is
not what we let in from the network:

====================================  =======================================  =================================
\\                                     `dialects.FILE`                          `dialects.BODY`
====================================  =======================================  =================================
bytes that are not UTF-8              kept, and written again                  refused
byte-order mark, comments             skipped                                  refused
``$ref``                              the object that it names                 an object like any other
an object as a key                    refused                                  `values.ObjectKey`
objects and lists in one another      200 levels                               64 levels
``"true"``, 1 for true; 7 for ``"7"``  taken for one another                    refused, but ``"7"`` for 7
a member that is not declared         kept, and written again                  left out
the first error                       at the byte of the value, by its path    at byte 0, by class and member
written                               on many lines, indented                  on one line
====================================  =======================================  =================================

Two more differ in what is written alone: `dialects.BROWSER` is the form of metrics, of values in RocksDB and of POP
messages, `dialects.STANDARD` that of routes for newer clients. The classes that files and bodies share are in
`formats.model`, those of files in `formats.config`, those of bodies and headers in `formats.remoting`.
"""
