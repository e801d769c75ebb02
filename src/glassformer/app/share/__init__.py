"""`glass share RUN`: one HTML file that contains the model of a run and computes its views without a server."""
