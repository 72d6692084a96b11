"""What an agent author uses: ``Agent``, ``capability``, the handler's ``Context``, and the outcomes one may raise."""
