"""Questions to a person: answering, announcing and signing them."""
