"""Records a sample of the calls, with pseudonyms for its values."""
