"""Server of the web page and of the API (`glass serve RUN`). It returns the results of the library's functions."""
