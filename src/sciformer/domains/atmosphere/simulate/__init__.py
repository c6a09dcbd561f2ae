"""Simulated temperature and winds on a rotating sphere, with a daily cycle."""
