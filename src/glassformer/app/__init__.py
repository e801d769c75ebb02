"""Applications: the command line (`cli`), the server with its API and page (`server`), and the shared file (`share`).

`course` imports modules of the separate course package. No other package of the library imports from `app`.
"""
