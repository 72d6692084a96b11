"""The router: admit, bind, settle. ``router.py`` is the turn that puts the three together."""
