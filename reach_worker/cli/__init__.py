"""The command ``reach``, by what people do: run, publish, look, repair."""
