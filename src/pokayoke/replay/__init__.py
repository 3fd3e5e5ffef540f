"""LOOK BACK: recorded calls, the contracts learnt from them, and how contracts would judge them.

    readers/   a file of any known format -> recordings, line by line
    learn/     recordings -> evidence -> contracts that a person edits
    score/     recordings and contracts -> rates, output validity, coverage; as JSON or one HTML page
    sample/    live calls -> a sample with pseudonyms, for replay

Everything in a recording is untrusted data, and is never interpreted as anything else.
"""
