"""Simulated fields: temperature carried by winds on a rotating sphere, with a daily cycle."""
