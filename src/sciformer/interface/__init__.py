"""Python interface: functions of `import sciformer as sf`, HTML for notebooks."""
