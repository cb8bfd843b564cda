"""How much of the product a request passes through: `tox -e walks`, or `python -m tests.walks`.

A walk goes from one event to another, in a real server, a real relay and a real ctl (`walks.py` has the five). What is
counted is what a reader has to open who follows it:

- A file of `intercom` counts if one of its functions was entered. `actors` and other libraries do not count.
- A function is a code object, told by its file, first line and qualified name; a nested one is a function of its own.
  Entered means that it was called, or that it is a coroutine or generator that went on where it had waited.
- Not counted: lambdas, comprehensions, methods that attrs generates, the bodies of modules and classes, and what is
  called while a module is loaded.
- A server and a relay count from the first event until nothing new is entered after the last, so that their start does
  not count, nor the agent's first call, which opens its session. A ctl process is counted from its first line on.
- Each walk is made five times in one server. What was entered every time belongs to it; what was due only now and then
  (timers, what is loaded or kept for later) does not. On a busy machine a timer of a second may be due each time.
- The total is the union over the processes: a file that two of them enter is one file.
"""
