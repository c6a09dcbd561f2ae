"""Interface of tokens: base class, optional protocols, patches of arrays."""
