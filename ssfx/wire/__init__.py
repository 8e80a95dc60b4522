"""What travels, as data: payloads of a message, and batches of segments that one call fills."""
