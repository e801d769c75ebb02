"""Applications: the command line (`cli`), the server with its API and page (`server`), and the shared file (`share`).

`course` imports modules of the separate course package. Outside `app`, only `__main__` and `learn` import from `app`.
"""
