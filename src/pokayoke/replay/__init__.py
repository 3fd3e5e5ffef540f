"""LOOK BACK: recorded calls, the contracts learnt from them, and what contracts would have said to them.

    readers/     a file of any known kind -> recordings, line by line
    learn.py     recordings -> evidence -> contracts a person would edit
    score.py     recordings and contracts -> the four rates, output validity, coverage
    report.py    a score -> one self-contained HTML page
    recorder.py  live calls -> a sample with pseudonyms, for replay

Everything in a recording is untrusted: it is data here, and text nowhere else.
"""
