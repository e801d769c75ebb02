"""`glass share RUN`: one HTML file that holds a run's model and computes its views by itself, without a server."""
