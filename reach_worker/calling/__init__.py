"""What callers import: tasks sent, their answers awaited, streamed, fetched later, taken back."""
