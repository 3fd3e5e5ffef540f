"""What a run may still do: the ladder, the latch, the loop guard, the kill switch."""
