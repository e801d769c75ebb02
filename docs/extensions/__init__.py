"""Sphinx extensions of the book: MathML formulas, links to the glossary, and pages generated from the package."""
