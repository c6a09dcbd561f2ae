"""Quantum spins: Hamiltonians, exact ground states, and transformers as wave functions."""
