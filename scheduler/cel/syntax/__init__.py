"""From the text of a selector to a typed tree: lexer, parser, literals, macros; and how a pass walks over the tree."""
