"""`translation`: parallel English, French and Bangla sentences from one synchronous grammar."""
