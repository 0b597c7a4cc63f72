"""Results as they are found on disk: what each kind holds, how files are read, and what is worked out about them.

This room is to the left of both ``report`` and ``reproduce``. The schema of a result that ``reproduce`` writes is here,
so that the module that writes it and the report that reads it use one and the same class; ``reproduce`` draws with
``report``'s figures and tables, so that the report cannot import the classes from there.
"""
