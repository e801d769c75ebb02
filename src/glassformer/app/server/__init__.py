"""The server of the page and of the API: `glass serve RUN`. It shows what the library's own functions give."""
