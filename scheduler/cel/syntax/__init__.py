"""From the text of a selector to a typed tree: lexer, parser, literals."""
