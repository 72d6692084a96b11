"""The rules, pure: values in, values out. No I/O, no clock, no chance; time and draws are passed in."""
