"""Parse the text of a selector into a tree: lexer, grammar, parser and macros."""
