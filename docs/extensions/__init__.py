"""What the book needs beside Sphinx: formulas without a script, linked terms, and pages made from the program."""
