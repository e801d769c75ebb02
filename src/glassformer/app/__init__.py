"""Applications: the command line (`cli`), the server with its API and page (`server`), and the shared file (`share`).

`course` finds the package of the course. No other package of the library imports from this one.
"""
