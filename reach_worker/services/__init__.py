"""What acts: services that take values from the outside, have the core decide, and carry it out."""
