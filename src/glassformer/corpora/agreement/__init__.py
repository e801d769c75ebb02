"""`agreement`: sentences whose verb agrees with its subject across other nouns.

An example is "Near the doors, the keys to the cabinet are old." The subject may be followed by a chain of up to four
nouns in prepositional phrases, in a relative clause, or in a first verb phrase before "and". An attractor is a noun
between subject and verb that differs from the subject in number (Linzen et al. 2016, "Assessing the ability of LSTMs to
learn syntax-sensitive dependencies"; kinds of sentences after Marvin and Linzen 2018, "Targeted syntactic evaluation").

Some combinations of a subject and another noun are held out: documents never contain them, and minimal pairs contain
only held-out combinations, unless other combinations are requested. A model is correct on a pair if log P(good) >
log P(bad). Four pairs with the same words form a group, one for each cell of (number of the subject) x (number of the
nouns in the chain, all the same), so a heuristic that uses a noun of the chain is wrong on half of each group.
"""
