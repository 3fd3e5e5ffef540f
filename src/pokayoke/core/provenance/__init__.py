"""Where the values of a call come from: the user's words, a trusted output, a record, or nothing that anybody said."""
