"""Records a sample of calls, with pseudonyms for their values."""
