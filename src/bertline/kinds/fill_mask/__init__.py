"""Masked language modelling on the user's text."""
