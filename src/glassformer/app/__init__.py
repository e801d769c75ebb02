"""App: what a person starts. The command line (`cli`), the server with its API and page (`server`), and the page in one
file (`share`). `course` finds the package of the course. Nothing below imports from here.
"""
