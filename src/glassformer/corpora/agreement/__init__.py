"""`agreement`: a verb agrees with its subject, whatever nouns stand between them.

"Near the doors, the keys to the cabinet are old." The subject may be followed by a chain of up to four nouns in
prepositional phrases, in a relative clause, or in a first verb phrase before "and". A noun between subject and verb
whose number is not the subject's is an attractor (Linzen et al. 2016, "Assessing the ability of LSTMs to learn
syntax-sensitive dependencies"; kinds of sentences after Marvin & Linzen 2018, "Targeted syntactic evaluation").

Some combinations of a subject and another noun are held out: no document has them, and minimal pairs have no others.
A pair is right where log P(good) > log P(bad). Four pairs with the same words belong together, one for each cell of
(number of the subject) x (number of the nouns in the chain, all alike), so rules that look at one noun are found out.
"""
