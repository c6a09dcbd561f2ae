"""Where the domains live: one file for each kind of token."""
