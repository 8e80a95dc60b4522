"""Figures: how scripts in experiments/ are found and drawn, and the panels and the style that they share. No torch."""
